// Products with many activation rows on AVX2: 16 rows of weights are unpacked once into a panel that stays in the L2
// cache, then multiplied by tiles of up to three activation rows with all sums in registers.
//
// A float sum belongs to one of eight lanes, chosen by its group (kernels.h). Here a vector holds one lane of eight
// rows: a tile goes through the groups lane by lane, and the panel is laid out in that order.
#pragma once
#include "kernels/avx2/act.h"

namespace cortiq::CORTIQ_KERNELS {

constexpr size_t kPanelRows = 16;
constexpr int kTileCols = 3;  // six integer and six float sums, two weights, an activation, a product: 16 registers

// Where group g stands in a panel of `groups`.
inline size_t panel_spot(size_t g, size_t groups) { return g % kBlock * div_up(groups, kBlock) + g / kBlock; }

// The activation rows of a tile.
template <int kCols>
struct TileRows {
    TileRows(const u8* act, size_t k) {
        for (int c = 0; c < kCols; c++) {
            const ActRow row(act + size_t(c) * act_nbytes(k), k);
            block[c] = row.block, wide[c] = row.wide;
        }
    }
    const ActBlock* block[kCols];
    const u8* wide[kCols];
};

// The value itself. The compiler would compute many products before it adds them, and spill the sums for it.
inline I in_order(I v) {
    asm volatile("" : "+x"(v));
    return v;
}

inline I transpose_step32(I a, I b, bool high) {
    return high ? _mm256_unpackhi_epi32(a, b) : _mm256_unpacklo_epi32(a, b);
}

// Rows 0..7 of 32-bit elements 0..7 become elements 0..7 of rows 0..7.
inline void transpose8(I* v) {
    I t[8], u[8];
    for (int i = 0; i < 4; i++) {
        t[2 * i] = transpose_step32(v[2 * i], v[2 * i + 1], false);
        t[2 * i + 1] = transpose_step32(v[2 * i], v[2 * i + 1], true);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]), u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]), u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
}

// Panels of q4_tiled: per group and eight rows 8 vectors of nibbles, dword lane = row. Vectors 0..3 hold four even
// columns each, 4..7 the odd ones, in the order of ActBlock::split. Then the scales, [group][16 rows].
struct Q4Panel {
    static constexpr size_t kGroupBytes = 512;
    static size_t nbytes(size_t groups) {
        return round_up(groups, kBlock) * (kGroupBytes + kPanelRows * sizeof(float));
    }

    Q4Panel(const MatrixView& w, size_t, u8* memory)
        : t(w), groups(t.groups), fields(memory), scales(reinterpret_cast<float*>(memory + round_up(groups, kBlock) * kGroupBytes)) {}

    void fill(const size_t* rows) {
        const I low4 = _mm256_set1_epi8(15);
        for (size_t half = 0; half < 2; half++) {
            const u8* p[8];
            for (size_t i = 0; i < 8; i++) p[i] = t.row(rows[8 * half + i]);
            for (size_t g = 0; g < groups; g++) {
                I v[4];
                for (size_t i = 0; i < 4; i++) v[i] = two(p[i] + 18 * g + 2, p[i + 4] + 18 * g + 2);
                const I a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
                const I c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
                const I quads[4] = {_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c),
                                    _mm256_unpacklo_epi64(b, d), _mm256_unpackhi_epi64(b, d)};
                const size_t spot = panel_spot(g, groups);
                u8* at = fields + spot * kGroupBytes + half * 256;
                for (size_t i = 0; i < 4; i++) {
                    store_i(at + 32 * i, _mm256_and_si256(quads[i], low4));
                    store_i(at + 128 + 32 * i, _mm256_and_si256(_mm256_srli_epi16(quads[i], 4), low4));
                }
                alignas(16) std::uint16_t half_scales[8];
                for (size_t i = 0; i < 8; i++) half_scales[i] = load_as<std::uint16_t>(p[i] + 18 * g);
                store_f(scales + spot * kPanelRows + 8 * half, _mm256_cvtph_ps(load_128(half_scales)));
            }
        }
    }

    template <int kCols>
    inline void dots(size_t g, size_t spot, const TileRows<kCols>& x, I (*sum)[kCols]) const {
        const u8* w = fields + spot * kGroupBytes;
        const size_t b = g / kBlock, offset = split_offset(g);
#pragma GCC unroll 3
        for (int c = 0; c < kCols; c++)
            sum[0][c] = sum[1][c] = spread_i32(&x.block[c][b].start[g % kBlock]);
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++) {
            const I w0 = load_i(w + 32 * i), w1 = load_i(w + 256 + 32 * i);
#pragma GCC unroll 3
            for (int c = 0; c < kCols; c++) {
                const I v = in_order(spread_i32(x.block[c][b].split + offset + i / 4 * 32 + i % 4 * 4));
                sum[0][c] = in_order(_mm256_add_epi16(sum[0][c], _mm256_maddubs_epi16(w0, v)));
                sum[1][c] = in_order(_mm256_add_epi16(sum[1][c], _mm256_maddubs_epi16(w1, v)));
            }
        }
        const I ones = _mm256_set1_epi16(1);
#pragma GCC unroll 3
        for (int c = 0; c < kCols; c++) {
            sum[0][c] = _mm256_madd_epi16(sum[0][c], ones);
            sum[1][c] = _mm256_madd_epi16(sum[1][c], ones);
        }
    }
    __m256 factor(size_t spot, size_t half, __m256 x_scale) const {
        return mul(load_f(scales + spot * kPanelRows + 8 * half), x_scale);
    }
    __m256 finish(__m256 sum, size_t) const { return sum; }

    Q4Tiled t;
    size_t groups;
    u8* fields;
    float* scales;
};

// Panels of q8_row: per group and eight rows 16 vectors of two int16 columns for each row. Then the row scales.
struct Q8Panel {
    static constexpr size_t kGroupBytes = 1024;
    static size_t nbytes(size_t groups) {
        return round_up(groups, kBlock) * kGroupBytes + kPanelRows * sizeof(float);
    }

    Q8Panel(const MatrixView& w, size_t, u8* memory)
        : t(w), groups(t.groups), fields(memory), scales(reinterpret_cast<float*>(memory + round_up(groups, kBlock) * kGroupBytes)) {}

    void fill(const size_t* rows) {
        for (size_t half = 0; half < 2; half++) {
            for (size_t i = 0; i < 8; i++) scales[8 * half + i] = t.scale(rows[8 * half + i]);
            for (size_t step = 0; step < 2 * groups; step++) {
                const size_t column = 16 * step, left = t.cols > column ? smaller<size_t>(16, t.cols - column) : 0;
                I v[8];
                for (size_t i = 0; i < 8; i++) {
                    const u8* p = t.row(rows[8 * half + i]) + column;
                    alignas(16) u8 rest[16] = {};
                    if (left < 16) std::memcpy(rest, p, left);
                    v[i] = _mm256_cvtepi8_epi16(load_128(left < 16 ? rest : p));
                }
                transpose8(v);
                u8* at = fields + panel_spot(step / 2, groups) * kGroupBytes + half * 512 + step % 2 * 256;
                for (size_t i = 0; i < 8; i++) store_i(at + 32 * i, v[i]);
            }
        }
    }

    template <int kCols>
    inline void dots(size_t g, size_t spot, const TileRows<kCols>& x, I (*sum)[kCols]) const {
        const u8* w = fields + spot * kGroupBytes;
#pragma GCC unroll 3
        for (int c = 0; c < kCols; c++) sum[0][c] = sum[1][c] = _mm256_setzero_si256();
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; i++) {
            const I w0 = load_i(w + 32 * i), w1 = load_i(w + 512 + 32 * i);
#pragma GCC unroll 3
            for (int c = 0; c < kCols; c++) {
                const I v = in_order(spread_i32(x.wide[c] + 64 * g + 4 * i));
                sum[0][c] = in_order(_mm256_add_epi32(sum[0][c], _mm256_madd_epi16(w0, v)));
                sum[1][c] = in_order(_mm256_add_epi32(sum[1][c], _mm256_madd_epi16(w1, v)));
            }
        }
    }
    __m256 factor(size_t, size_t, __m256 x_scale) const { return x_scale; }
    __m256 finish(__m256 sum, size_t half) const { return mul(sum, load_f(scales + 8 * half)); }

    Q8Row t;
    size_t groups;
    u8* fields;
    float* scales;
};

// One panel times kCols activation rows: y[c * y_stride + 0..15], of which `count` rows exist.
template <int kCols, class Panel>
void gemm_tile(const Panel& panel, const u8* act, size_t k, float* y, size_t y_stride, size_t count) {
    const TileRows<kCols> x(act, k);
    F lanes[kBlock][2][kCols];
    for (size_t lane = 0, spot = 0; lane < kBlock; lane++) {
        F total[2][kCols];
#pragma GCC unroll 3
        for (int c = 0; c < kCols; c++) total[0][c] = total[1][c] = zero_f();
        for (size_t g = lane; g < panel.groups; g += kBlock, spot++) {
            I sum[2][kCols];
            panel.dots(g, spot, x, sum);
#pragma GCC unroll 3
            for (int c = 0; c < kCols; c++) {
                const F scale = spread_f(&x.block[c][g / kBlock].scale[lane]);
#pragma GCC unroll 2
                for (size_t half = 0; half < 2; half++)
                    total[half][c] = fma(to_f(sum[half][c]), panel.factor(spot, half, scale), total[half][c]);
            }
        }
        spot = (lane + 1) * div_up(panel.groups, kBlock);
        std::memcpy(lanes[lane], total, sizeof total);
    }
    for (int c = 0; c < kCols; c++) {
        alignas(32) float out[kPanelRows];
        for (size_t half = 0; half < 2; half++) {
            auto at = [&](int i) { return lanes[i][half][c]; };
            const __m256 even = add(add(at(0), at(4)), add(at(2), at(6)));
            const __m256 odd = add(add(at(1), at(5)), add(at(3), at(7)));
            store_f(out + 8 * half, panel.finish(add(add(even, odd), zero_f()), half));
        }
        std::memcpy(y + size_t(c) * y_stride, out, count * sizeof(float));
    }
}

template <class Panel>
void gemm(const Job& job, const u8* act) {
    const size_t k = job.w.cols, stride = act_nbytes(k);
    Panel panel(job.w, k, job.scratch.data);
    for (size_t r = job.r0; r < job.r1; r += kPanelRows) {
        const size_t count = smaller(kPanelRows, job.r1 - r);
        size_t rows[kPanelRows];
        for (size_t i = 0; i < kPanelRows; i++) rows[i] = r + smaller(i, count - 1);
        panel.fill(rows);
        for (size_t c = 0; c < job.m;) {
            const u8* x = act + c * stride;
            float* y = job.y + c * job.y_stride + r;
            auto tile = [&](auto kernel) { kernel(panel, x, k, y, job.y_stride, count); };
            const size_t cols = smaller<size_t>(kTileCols, job.m - c);
            switch (cols) {
                case 1: tile(gemm_tile<1, Panel>); break;
                case 2: tile(gemm_tile<2, Panel>); break;
                default: tile(gemm_tile<3, Panel>);
            }
            c += cols;
        }
    }
}

inline size_t gemm_scratch(size_t k) {
    const size_t groups = div_up(k, kGroup), q4 = Q4Panel::nbytes(groups), q8 = Q8Panel::nbytes(groups);
    return q4 > q8 ? q4 : q8;
}

}  // namespace cortiq::CORTIQ_KERNELS

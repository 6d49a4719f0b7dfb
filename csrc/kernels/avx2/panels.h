// Panels and tiles for the products with many activation rows on AVX2 (kernels/gemm.h).
#pragma once
#include "kernels/avx2/act.h"
#include "kernels/panel.h"

namespace cortiq::CORTIQ_KERNELS {

constexpr int kTileCols = 3;  // six integer and six float sums, two weights, an activation, a product: 16 registers

// The activation rows of a tile.
template <int kCols>
struct TileRows {
    TileRows(const u8* act, size_t k) {
        for (int c = 0; c < kCols; c++) block[c] = reinterpret_cast<const ActBlock*>(act + size_t(c) * act_nbytes(k));
    }
    const ActBlock* block[kCols];
};

// One group of them. The next one of its lane is in the next block, at the same place.
template <int kCols>
struct TileGroup {
    TileGroup(const TileRows<kCols>& rows, size_t lane) {
        for (int c = 0; c < kCols; c++) {
            const ActBlock& b = *rows.block[c];
            split[c] = b.split + split_offset(lane);
            wide[c] = b.wide + lane * kGroup;
            numbers[c] = b.scale + lane;
        }
    }
    void next() {
        for (int c = 0; c < kCols; c++) {
            split[c] += sizeof(ActBlock);
            wide[c] += sizeof(ActBlock) / sizeof *wide[c];
            numbers[c] += sizeof(ActBlock) / sizeof *numbers[c];
        }
    }
    const float* scale(int c) const { return numbers[c]; }
    const float* start(int c) const { return numbers[c] + kBlock; }

    const i8* split[kCols];
    const std::int16_t* wide[kCols];
    const float* numbers[kCols];
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
// columns each, 4..7 the odd ones, in the order of ActBlock::split. 
struct Q4Panel : Panel<Q4Tiled, 512, true> {
    using Panel::Panel;

    void fill(const size_t* rows) const {
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
                u8* to = at(spot) + half * 256;
                for (size_t i = 0; i < 4; i++) {
                    store_i(to + 32 * i, _mm256_and_si256(quads[i], low4));
                    store_i(to + 128 + 32 * i, _mm256_and_si256(_mm256_srli_epi16(quads[i], 4), low4));
                }
                alignas(16) std::uint16_t half_scales[8];
                for (size_t i = 0; i < 8; i++) half_scales[i] = load_as<std::uint16_t>(p[i] + 18 * g);
                store_f(scales + spot * kPanelRows + 8 * half, _mm256_cvtph_ps(load_128(half_scales)));
            }
        }
    }

    template <int kCols>
    inline void dots(size_t spot, const TileGroup<kCols>& x, I (*sum)[kCols]) const {
        const u8* w = at(spot);
#pragma GCC unroll 3
        for (int c = 0; c < kCols; c++) sum[0][c] = sum[1][c] = spread_i32(x.start(c));
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++) {
            const I w0 = load_i(w + 32 * i), w1 = load_i(w + 256 + 32 * i);
#pragma GCC unroll 3
            for (int c = 0; c < kCols; c++) {
                const I v = in_order(spread_i32(x.split[c] + i / 4 * 32 + i % 4 * 4));
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
};

// Panels of q8_row: per group and eight rows 16 vectors of two int16 columns for each row.
struct Q8Panel : Panel<Q8Row, 1024, false> {
    using Panel::Panel;

    void fill(const size_t* rows) const {
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
                u8* to = at(panel_spot(step / 2, groups)) + half * 512 + step % 2 * 256;
                for (size_t i = 0; i < 8; i++) store_i(to + 32 * i, v[i]);
            }
        }
    }

    template <int kCols>
    inline void dots(size_t spot, const TileGroup<kCols>& x, I (*sum)[kCols]) const {
        const u8* w = at(spot);
#pragma GCC unroll 3
        for (int c = 0; c < kCols; c++) sum[0][c] = sum[1][c] = _mm256_setzero_si256();
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; i++) {
            const I w0 = load_i(w + 32 * i), w1 = load_i(w + 512 + 32 * i);
#pragma GCC unroll 3
            for (int c = 0; c < kCols; c++) {
                const I v = in_order(spread_i32(x.wide[c] + 2 * i));
                sum[0][c] = in_order(_mm256_add_epi32(sum[0][c], _mm256_madd_epi16(w0, v)));
                sum[1][c] = in_order(_mm256_add_epi32(sum[1][c], _mm256_madd_epi16(w1, v)));
            }
        }
    }
};

}  // namespace cortiq::CORTIQ_KERNELS

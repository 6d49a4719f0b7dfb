// Panels and tiles for the products with many activation rows on AVX2 (kernels/gemm.h).
#pragma once
#include "kernels/avx2/act.h"
#include "kernels/panel.h"

namespace cortiq::CORTIQ_KERNELS {

constexpr size_t kPanels = 1;
constexpr int kTileCols = 3;  // twelve integer sums, three activations, a product: 16 registers

// One group of the activation rows of a tile.
template <int kCols>
struct TileGroup {
    TileGroup(const u8* act, size_t k) {
        for (int c = 0; c < kCols; c++, act += act_nbytes(k))
            raised[c] = act + raised_offset(k), wide[c] = act_wide(act, k), scales[c] = act_scales(act, k);
    }
    void next() {
        for (int c = 0; c < kCols; c++) raised[c] += kGroup, wide[c] += kGroup, scales[c]++;
    }
    const float* scale(int c) const { return scales[c]; }

    const u8* raised[kCols];
    const std::int16_t* wide[kCols];
    const float* scales[kCols];
};

// The value itself. The compiler would compute many products before it adds them, and spill the sums for it.
inline I in_order(I v) {
    asm volatile("" : "+x"(v));
    return v;
}

// Weights are an operand in memory, as near to `w` as one byte of an address can tell: a product costs two instructions
// of few bytes, and how many a cycle can fetch is what bounds a tile.
inline I multiply_bytes(I x, const u8* w) {
    I v;
    asm("vpmaddubsw %1, %2, %0" : "=x"(v) : "m"(*reinterpret_cast<const I*>(w)), "x"(x));
    return v;
}
inline I multiply_words(I x, const u8* w) {
    I v;
    asm("vpmaddwd %1, %2, %0" : "=x"(v) : "m"(*reinterpret_cast<const I*>(w)), "x"(x));
    return v;
}
// p + by, in a register: what follows is near to it.
inline const u8* moved(const u8* p, size_t by) {
    p += by;
    asm("" : "+r"(p));
    return p;
}

// sum[part][c] += the products of one group of a panel, kSteps vectors for each of its parts, and activation row c.
template <size_t kSteps, int kCols, class Spread, class MultiplyAdd>
inline void add_products(const u8* w, I (*sum)[kCols], Spread spread, MultiplyAdd multiply_add) {
    constexpr size_t kStep = kPanelParts * sizeof(I);  // 128: two steps are within reach of an address
    w = moved(w, kStep);
#pragma GCC unroll 16
    for (size_t i = 0; i < kSteps; i++) {
        I x[kCols];
#pragma GCC unroll 3
        for (int c = 0; c < kCols; c++) x[c] = spread(c, i);
        const u8* at = w + i % 2 * kStep - kStep;
#pragma GCC unroll 12
        for (size_t n = 0; n < kPanelParts * kCols; n++) {
            I& to = sum[n / kCols][n % kCols];
            to = in_order(multiply_add(to, x[n % kCols], at + n / kCols * sizeof(I)));
        }
        if (i % 2 == 1) w = moved(w, 2 * kStep);
    }
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

// Panels of q4_tiled: per group where the sums start, then eight steps of a vector for each eight rows, whose dword
// lane holds four weights of a row, -8 to 7: steps 0..3 even columns, 4..7 odd ones, in the order of raised activations.
// Each 16-bit sum of 16 products with raised activations starts at -128 times its weights and ends within 16 * 8 * 127;
// between, it may wrap. A product pair is at most 2 * 8 * 255.
struct Q4Panel : Panel<Q4Tiled, kPanelParts * 9 * sizeof(I), true> {
    using Panel::Panel;

    void fill(const size_t* rows) const {
        for (size_t part = 0; part < kPanelParts; part++) fill_part(rows + part * kLanes, part);
    }
    void fill_part(const size_t* rows, size_t part) const {
        const I low4 = _mm256_set1_epi8(15), zero_point = _mm256_set1_epi8(8), raise = _mm256_set1_epi8(-128);
        const u8* p[kLanes];
        for (size_t i = 0; i < kLanes; i++) p[i] = t.row(rows[i]);
        for (size_t g = 0; g < groups; g++) {
            I v[4];
            for (size_t i = 0; i < 4; i++) v[i] = two(p[i] + 18 * g + 2, p[i + 4] + 18 * g + 2);
            const I a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
            const I c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
            const I quads[4] = {_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c), _mm256_unpacklo_epi64(b, d),
                                _mm256_unpackhi_epi64(b, d)};
            u8* to = at(g) + part * sizeof(I);
            I start = _mm256_setzero_si256();
            auto store = [&](size_t step, I nibbles) {
                const I weights = _mm256_sub_epi8(_mm256_and_si256(nibbles, low4), zero_point);
                start = _mm256_sub_epi16(start, _mm256_maddubs_epi16(raise, weights));
                store_i(to + (1 + step) * kPanelParts * sizeof(I), weights);
            };
            for (size_t i = 0; i < 4; i++) store(i, quads[i]), store(4 + i, _mm256_srli_epi16(quads[i], 4));
            store_i(to, start);
            alignas(16) std::uint16_t halves[kLanes];
            for (size_t i = 0; i < kLanes; i++) halves[i] = load_as<std::uint16_t>(p[i] + 18 * g);
            store_f(scales + g * kPanelRows + part * kLanes, _mm256_cvtph_ps(load_128(halves)));
        }
    }

    template <int kCols>
    inline void dots(size_t g, const TileGroup<kCols>& x, I (*sum)[kCols]) const {
        const u8* w = at(g);
#pragma GCC unroll 12
        for (size_t n = 0; n < kPanelParts * kCols; n++) sum[n / kCols][n % kCols] = load_i(w + n / kCols * sizeof(I));
        add_products<8>(
            w + kPanelParts * sizeof(I), sum,
            [&](int c, size_t i) { return spread_i32(x.raised[c] + 4 * i); },
            [](I to, I v, const u8* weights) { return _mm256_add_epi16(to, multiply_bytes(v, weights)); });
        const I ones = _mm256_set1_epi16(1);
#pragma GCC unroll 12
        for (size_t n = 0; n < kPanelParts * kCols; n++) {
            I& v = sum[n / kCols][n % kCols];
            v = _mm256_madd_epi16(v, ones);
        }
    }
};

// Panels of q8_row: per group 16 steps of a vector for each eight rows, whose dword lane holds two int16 columns of a row.
struct Q8Panel : Panel<Q8Row, kPanelParts * 16 * sizeof(I), false> {
    using Panel::Panel;

    void fill(const size_t* rows) const {
        for (size_t part = 0; part < kPanelParts; part++) fill_part(rows + part * kLanes, part);
    }
    void fill_part(const size_t* rows, size_t part) const {
        for (size_t i = 0; i < kLanes; i++) scales[part * kLanes + i] = t.scale(rows[i]);
        for (size_t half = 0; half < 2 * groups; half++) {
            const size_t column = 16 * half, left = t.cols > column ? smaller<size_t>(16, t.cols - column) : 0;
            I v[kLanes];
            for (size_t i = 0; i < kLanes; i++) {
                const u8* p = t.row(rows[i]) + column;
                alignas(16) u8 rest[16] = {};
                if (left < 16) std::memcpy(rest, p, left);
                v[i] = _mm256_cvtepi8_epi16(load_128(left < 16 ? rest : p));
            }
            transpose8(v);
            u8* to = at(half / 2) + (half % 2 * 8 * kPanelParts + part) * sizeof(I);
            for (size_t i = 0; i < 8; i++) store_i(to + i * kPanelParts * sizeof(I), v[i]);
        }
    }

    template <int kCols>
    inline void dots(size_t g, const TileGroup<kCols>& x, I (*sum)[kCols]) const {
#pragma GCC unroll 12
        for (size_t n = 0; n < kPanelParts * kCols; n++) sum[n / kCols][n % kCols] = _mm256_setzero_si256();
        add_products<16>(
            at(g), sum, [&](int c, size_t i) { return spread_i32(x.wide[c] + 2 * i); },
            [](I to, I v, const u8* weights) { return _mm256_add_epi32(to, multiply_words(v, weights)); });
    }
};

// lanes[i] = the sums over the groups with g % 8 == i. They stay in memory: no register is left for them.
template <int kCols, class AnyPanel>
inline void sum_groups(const AnyPanel& panel, const u8* act, F (*lanes)[kPanelParts][kCols]) {
    for (size_t lane = 0; lane < kBlock; lane++)
        for (size_t n = 0; n < kPanelParts * kCols; n++) lanes[lane][n / kCols][n % kCols] = zero_f();
    TileGroup<kCols> x(act, panel.cols);
    for (size_t g = 0; g < panel.groups; g++, x.next()) {
        I sum[kPanelParts][kCols];
        panel.dots(g, x, sum);
        add_scaled(panel, g, x, sum, lanes[g % kBlock]);
    }
}

}  // namespace cortiq::CORTIQ_KERNELS

// Panels and tiles for the products with many activation rows on AVX-512 (kernels/panels.h). A vector holds four
// columns of each of the 16 rows, which is what one dot instruction takes.
#pragma once
#include "kernels/avx512/act.h"
#include "kernels/panel.h"

namespace cortiq::CORTIQ_KERNELS {

constexpr int kTileCols = 12;  // twelve integer and twelve float sums, weights, scales, a product: 27 of 32 registers

// The activation rows of a tile. Every third one has a pointer, the two behind it are one and two strides away: so
// many addresses fit into the registers.
template <int kCols>
struct TileRows {
    static constexpr int kPointers = (kCols + 2) / 3;
    struct Group {
        const PanelGroup& operator[](int c) const {
            return *reinterpret_cast<const PanelGroup*>(at[c / 3] + size_t(c % 3) * stride);
        }
        const u8* at[kPointers];
        size_t stride;
    };

    TileRows(const u8* act, size_t k) : stride(act_nbytes(k)) {
        for (int i = 0; i < kPointers; i++) first[i] = act + act_blocks(k) * sizeof(ActBlock) + 3 * size_t(i) * stride;
    }
    Group group(size_t spot) const {
        Group g;
        g.stride = stride;
        for (int i = 0; i < kPointers; i++) {
            g.at[i] = first[i] + spot * sizeof(PanelGroup);
            asm volatile("" : "+r"(g.at[i]));  // else the compiler keeps an address per activation row, on the stack
        }
        return g;
    }
    const float* scale(int c, size_t, size_t spot) const {
        return &reinterpret_cast<const PanelGroup*>(first[c / 3] + size_t(c % 3) * stride)[spot].scale;
    }
    const u8* first[kPointers];
    size_t stride;
};

// dot[c] = the zero points' part + the products of one group of the panel, eight vectors at `w`, with activation row c.
template <std::int32_t PanelGroup::*kSum, int kCols>
inline void dot_group(const u8* w, const TileRows<kCols>& x, size_t spot, I* dot) {
    const auto group = x.group(spot);
#pragma GCC unroll 12
    for (int c = 0; c < kCols; c++) dot[c] = _mm512_set1_epi32(group[c].*kSum);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        const I weights = _mm512_load_si512(w + 64 * i);
#pragma GCC unroll 12
        for (int c = 0; c < kCols; c++)
            dot[c] = _mm512_dpbusd_epi32(dot[c], weights, spread_i32(group[c].quants + 4 * i));
    }
}

// Rows 0..15 of 32-bit elements 0..15 become elements 0..15 of rows 0..15.
inline void transpose16(I* v) {
    I t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]), v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]), v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i64x2(v[i], v[i + 4], 0x88), t[i + 4] = _mm512_shuffle_i64x2(v[i], v[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i64x2(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i64x2(v[i + 8], v[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_i64x2(t[i], t[i + 8], 0x88), v[i + 8] = _mm512_shuffle_i64x2(t[i], t[i + 8], 0xdd);
        v[i + 4] = _mm512_shuffle_i64x2(t[i + 4], t[i + 12], 0x88);
        v[i + 12] = _mm512_shuffle_i64x2(t[i + 4], t[i + 12], 0xdd);
    }
}

// A panel of q4_tiled: nibbles as bytes. Per group four vectors of even columns, four of odd ones.
struct Q4Panel : Panel<Q4Tiled, 512, true> {
    using Panel::Panel;

    void fill(const size_t* rows) const {
        const I low4 = _mm512_set1_epi8(15);
        const u8* p[kPanelRows];
        for (size_t i = 0; i < kPanelRows; i++) p[i] = t.row(rows[i]);
        for (size_t g = 0; g < groups; g++) {
            I v[4];
            for (size_t i = 0; i < 4; i++) {
                auto nibbles = [&](size_t j) { return load_128(p[4 * j + i] + 18 * g + 2); };
                v[i] = _mm512_inserti32x4(_mm512_castsi128_si512(nibbles(0)), nibbles(1), 1);
                v[i] = _mm512_inserti32x4(_mm512_inserti32x4(v[i], nibbles(2), 2), nibbles(3), 3);
            }
            const I a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
            const I c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
            const I quads[4] = {_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d),
                                _mm512_unpackhi_epi64(b, d)};
            const size_t spot = panel_spot(g, groups);
            for (size_t i = 0; i < 4; i++) {
                store_i(at(spot) + 64 * i, _mm512_and_si512(quads[i], low4));
                store_i(at(spot) + 256 + 64 * i, _mm512_and_si512(_mm512_srli_epi16(quads[i], 4), low4));
            }
            alignas(32) std::uint16_t halves[kPanelRows];
            for (size_t i = 0; i < kPanelRows; i++) halves[i] = load_as<std::uint16_t>(p[i] + 18 * g);
            store_f(scales + spot * kPanelRows, _mm512_cvtph_ps(load_256(halves)));
        }
    }

    template <int kCols>
    void dots(size_t, size_t spot, const TileRows<kCols>& x, I (*sum)[kCols]) const {
        dot_group<&PanelGroup::sum>(at(spot), x, spot, sum[0]);
    }
};

// A panel of q8_row: bytes with their top bit flipped, in the same order.
struct Q8Panel : Panel<Q8Row, 512, false> {
    using Panel::Panel;

    void fill(const size_t* rows) const {
        const u8* p[kPanelRows];
        for (size_t i = 0; i < kPanelRows; i++) p[i] = t.row(rows[i]), scales[i] = t.scale(rows[i]);
        alignas(64) u8 split[64];  // of two groups: even columns, then odd ones
        for (size_t i = 0; i < 64; i++) split[i] = u8(i / 32 * 32 + i % 16 * 2 + i % 32 / 16);
        const I order = load_i(split), flip = _mm512_set1_epi8(-128);
        for (size_t g = 0; g < groups; g += 2) {
            const size_t left = cols - g * kGroup;
            const __mmask64 there = left >= 64 ? ~__mmask64(0) : (__mmask64(1) << left) - 1;
            I v[kPanelRows];
            for (size_t i = 0; i < kPanelRows; i++) {
                const I bytes = _mm512_maskz_loadu_epi8(there, p[i] + g * kGroup);
                v[i] = _mm512_permutexvar_epi8(order, _mm512_xor_si512(bytes, flip));
            }
            transpose16(v);
            for (size_t i = 0; i < 8; i++) store_i(at(panel_spot(g, groups)) + 64 * i, v[i]);
            if (g + 1 == groups) break;
            for (size_t i = 0; i < 8; i++) store_i(at(panel_spot(g + 1, groups)) + 64 * i, v[8 + i]);
        }
    }

    template <int kCols>
    void dots(size_t, size_t spot, const TileRows<kCols>& x, I (*sum)[kCols]) const {
        dot_group<&PanelGroup::byte_sum>(at(spot), x, spot, sum[0]);
    }
};

}  // namespace cortiq::CORTIQ_KERNELS

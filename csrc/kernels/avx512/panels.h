// Panels and tiles for the products with many activation rows on AVX-512 (kernels/panels.h). A vector holds four
// columns of each of 16 rows, which is what one dot instruction takes.
#pragma once
#include "kernels/avx512/act.h"
#include "kernels/panel.h"

namespace cortiq::CORTIQ_KERNELS {

constexpr size_t kPanels = 2;
constexpr int kTileCols = 6;  // twelve integer and twelve float sums, two weights, an activation: 27 of 32 registers

// The activation rows of a tile. Every third one has a pointer, the two behind it are one and two strides away: so
// many addresses fit into the registers.
template <int kCols>
struct TileRows {
    TileRows(const u8* act, size_t k) : stride(act_nbytes(k)), groups(div_up(k, kGroup)) {
        for (int c = 0; c < kCols; c += 3) third[c / 3] = act + act_blocks(k) * sizeof(ActBlock) + size_t(c) * stride;
    }
    const u8* third[(kCols + 2) / 3];
    size_t stride, groups;
};

// One group of them. The next one of its lane is behind it.
template <int kCols>
struct TileGroup {
    TileGroup(const TileRows<kCols>& rows, size_t lane) : rows(rows), spot(panel_spot(lane, rows.groups)) {}
    void next() { spot++; }
    const PanelGroup& row(int c) const {
        return reinterpret_cast<const PanelGroup*>(rows.third[c / 3] + size_t(c % 3) * rows.stride)[spot];
    }
    const float* scale(int c) const { return &row(c).scale; }
    const TileRows<kCols>& rows;
    size_t spot;
};

// sum[part][c] = the zero points' part + the products of one group of the panel with activation row c. Each part of the
// panel has eight vectors.
template <std::int32_t PanelGroup::*kZeros, int kCols>
inline void dot_group(const u8* w, const TileGroup<kCols>& x, I (*sum)[kCols]) {
#pragma GCC unroll 6
    for (int c = 0; c < kCols; c++) sum[0][c] = sum[1][c] = _mm512_set1_epi32(x.row(c).*kZeros);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        const I w0 = _mm512_load_si512(w + 64 * i), w1 = _mm512_load_si512(w + 512 + 64 * i);
#pragma GCC unroll 6
        for (int c = 0; c < kCols; c++) {
            const I v = spread_i32(x.row(c).quants + 4 * i);
            sum[0][c] = _mm512_dpbusd_epi32(sum[0][c], w0, v);
            sum[1][c] = _mm512_dpbusd_epi32(sum[1][c], w1, v);
        }
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

// A panel of q4_tiled: nibbles as bytes. Per group and 16 rows four vectors of even columns, four of odd ones.
struct Q4Panel : Panel<Q4Tiled, 1024, true> {
    using Panel::Panel;

    void fill(const size_t* rows) const {
        for (size_t part = 0; part < kPanelParts; part++) fill_part(rows + part * kLanes, part);
    }
    void fill_part(const size_t* rows, size_t part) const {
        const I low4 = _mm512_set1_epi8(15);
        const u8* p[kLanes];
        for (size_t i = 0; i < kLanes; i++) p[i] = t.row(rows[i]);
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
            u8* to = at(spot) + part * 512;
            for (size_t i = 0; i < 4; i++) {
                store_i(to + 64 * i, _mm512_and_si512(quads[i], low4));
                store_i(to + 256 + 64 * i, _mm512_and_si512(_mm512_srli_epi16(quads[i], 4), low4));
            }
            alignas(32) std::uint16_t halves[kLanes];
            for (size_t i = 0; i < kLanes; i++) halves[i] = load_as<std::uint16_t>(p[i] + 18 * g);
            store_f(scales + spot * kPanelRows + part * kLanes, _mm512_cvtph_ps(load_256(halves)));
        }
    }

    template <int kCols>
    void dots(size_t spot, const TileGroup<kCols>& x, I (*sum)[kCols]) const {
        dot_group<&PanelGroup::sum>(at(spot), x, sum);
    }
};

// A panel of q8_row: bytes with their top bit flipped, in the same order.
struct Q8Panel : Panel<Q8Row, 1024, false> {
    using Panel::Panel;

    void fill(const size_t* rows) const {
        for (size_t part = 0; part < kPanelParts; part++) fill_part(rows + part * kLanes, part);
    }
    void fill_part(const size_t* rows, size_t part) const {
        const u8* p[kLanes];
        for (size_t i = 0; i < kLanes; i++) p[i] = t.row(rows[i]), scales[part * kLanes + i] = t.scale(rows[i]);
        alignas(64) u8 split[64];  // of two groups: even columns, then odd ones
        for (size_t i = 0; i < 64; i++) split[i] = u8(i / 32 * 32 + i % 16 * 2 + i % 32 / 16);
        const I order = load_i(split), flip = _mm512_set1_epi8(-128);
        for (size_t g = 0; g < groups; g += 2) {
            const size_t left = cols - g * kGroup;
            const __mmask64 there = left >= 64 ? ~__mmask64(0) : (__mmask64(1) << left) - 1;
            I v[kLanes];
            for (size_t i = 0; i < kLanes; i++) {
                const I bytes = _mm512_maskz_loadu_epi8(there, p[i] + g * kGroup);
                v[i] = _mm512_permutexvar_epi8(order, _mm512_xor_si512(bytes, flip));
            }
            transpose16(v);
            auto store = [&](size_t group, const I* from) {
                for (size_t i = 0; i < 8; i++) store_i(at(panel_spot(group, groups)) + part * 512 + 64 * i, from[i]);
            };
            store(g, v);
            if (g + 1 < groups) store(g + 1, v + 8);
        }
    }

    template <int kCols>
    void dots(size_t spot, const TileGroup<kCols>& x, I (*sum)[kCols]) const {
        dot_group<&PanelGroup::byte_sum>(at(spot), x, sum);
    }
};

// lanes[i] = the sums over the groups with g % 8 == i. Those of one lane have registers, so a tile goes lane by lane.
template <int kCols, class AnyPanel>
inline void sum_groups(const AnyPanel& panel, const u8* act, F (*lanes)[kPanelParts][kCols]) {
    const TileRows<kCols> rows(act, panel.cols);
    for (size_t lane = 0; lane < kBlock; lane++) {
        F total[kPanelParts][kCols];
#pragma GCC unroll 12
        for (size_t n = 0; n < kPanelParts * kCols; n++) total[n / kCols][n % kCols] = zero_f();
        size_t spot = panel_spot(lane, panel.groups);
        TileGroup<kCols> x(rows, lane);
        for (size_t g = lane; g < panel.groups; g += kBlock, spot++, x.next()) {
            I sum[kPanelParts][kCols];
            panel.dots(spot, x, sum);
            add_scaled(panel, spot, x, sum, total);
        }
        std::memcpy(lanes[lane], total, sizeof total);
    }
}

}  // namespace cortiq::CORTIQ_KERNELS

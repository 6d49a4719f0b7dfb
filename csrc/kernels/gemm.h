// Products with many activation rows: a few rows of weights are unpacked into a panel that stays in the L2 cache, then
// multiplied by tiles of a few activation rows with all sums in registers. Compiled once per instruction set, which
// provides kTileCols, TileRows, TileGroup and the panels (<isa>/panels.h): fill(rows) unpacks, dots(...) gives the exact
// dot products of one group.
//
// A float sum belongs to one of eight lanes, chosen by its group (kernels.h). Here a vector holds one lane of several
// rows: a tile goes through the groups lane by lane, and a panel is laid out in that order.
#pragma once
#include <array>
#include <utility>

#include "kernels/panel.h"

namespace cortiq::CORTIQ_KERNELS {

constexpr size_t kPanels = 64 / kPanelRows;  // unpacked together: a tile of activations serves all of them while it is near

// One panel times kCols activation rows: y[c * y_stride + r] for its rows r, of which `count` exist.
template <int kCols, class AnyPanel>
void gemm_tile(const AnyPanel& panel, const u8* act, float* y, size_t y_stride, size_t count) {
    const TileRows<kCols> rows(act, panel.cols);
    F lanes[kBlock][kPanelParts][kCols];
    for (size_t lane = 0; lane < kBlock; lane++) {
        F total[kPanelParts][kCols];
#pragma GCC unroll 12
        for (int c = 0; c < kCols; c++)
            for (size_t part = 0; part < kPanelParts; part++) total[part][c] = zero_f();
        size_t spot = panel_spot(lane, panel.groups);
        TileGroup<kCols> x(rows, lane);
        for (size_t g = lane; g < panel.groups; g += kBlock, spot++, x.next()) {
            I sum[kPanelParts][kCols];
            panel.dots(spot, x, sum);
#pragma GCC unroll 12
            for (int c = 0; c < kCols; c++) {
                const F scale = spread_f(x.scale(c));
#pragma GCC unroll 2
                for (size_t part = 0; part < kPanelParts; part++)
                    total[part][c] = fma(to_f(sum[part][c]), panel.factor(spot, part, scale), total[part][c]);
            }
        }
        std::memcpy(lanes[lane], total, sizeof total);
    }
    for (int c = 0; c < kCols; c++) {
        alignas(64) float out[kPanelRows];
        for (size_t part = 0; part < kPanelParts; part++) {
            auto at = [&](int i) { return lanes[i][part][c]; };
            const F even = add(add(at(0), at(4)), add(at(2), at(6)));
            const F odd = add(add(at(1), at(5)), add(at(3), at(7)));
            store_f(out + part * kLanes, panel.finish(add(add(even, odd), zero_f()), part));
        }
        std::memcpy(y + size_t(c) * y_stride, out, count * sizeof(float));
    }
}

template <class AnyPanel>
using Tile = void (*)(const AnyPanel& panel, const u8* act, float* y, size_t y_stride, size_t count);

// The tiles of 1 to kTileCols activation rows.
template <class AnyPanel, int... kLess>
constexpr std::array<Tile<AnyPanel>, sizeof...(kLess)> tiles(std::integer_sequence<int, kLess...>) {
    return {gemm_tile<kLess + 1, AnyPanel>...};
}

template <class AnyPanel>
void gemm(const Job& job, const u8* act) {
    static constexpr auto kTiles = tiles<AnyPanel>(std::make_integer_sequence<int, kTileCols>());
    const size_t stride = act_nbytes(job.w.cols), nbytes = AnyPanel::nbytes(div_up(job.w.cols, kGroup));
    for (size_t first = job.r0; first < job.r1; first += kPanels * kPanelRows) {
        const size_t last = smaller(job.r1, first + kPanels * kPanelRows);
        for (size_t r = first; r < last; r += kPanelRows) {
            size_t rows[kPanelRows];
            for (size_t i = 0; i < kPanelRows; i++) rows[i] = smaller(r + i, last - 1);
            AnyPanel(job.w, job.scratch.data + (r - first) / kPanelRows * nbytes).fill(rows);
        }
        for (size_t c = 0; c < job.m; c += kTileCols) {
            const auto tile = kTiles[smaller<size_t>(kTileCols, job.m - c) - 1];
            for (size_t r = first; r < last; r += kPanelRows) {
                const AnyPanel panel(job.w, job.scratch.data + (r - first) / kPanelRows * nbytes);
                tile(panel, act + c * stride, job.y + c * job.y_stride + r, job.y_stride, smaller(kPanelRows, last - r));
            }
        }
    }
}

template <class AnyPanel>
size_t gemm_scratch(size_t k) {
    return kPanels * AnyPanel::nbytes(div_up(k, kGroup));
}

}  // namespace cortiq::CORTIQ_KERNELS

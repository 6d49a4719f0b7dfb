// Products with many activation rows: a few rows of weights are unpacked into a panel that stays in the L2 cache, then
// multiplied by tiles of a few activation rows with all integer sums in registers. Compiled once per instruction set,
// which provides (<isa>/panels.h) the panels, kPanels of them unpacked together, tiles of kTileCols and sum_groups:
// fill(rows) unpacks, dots(...) gives the exact dot products of one group, sum_groups(...) the float sums of all.
//
// A float sum belongs to one of eight lanes, chosen by its group (kernels.h). Here a vector holds one lane of several rows.
#pragma once
#include <array>
#include <utility>

#include "kernels/panel.h"

namespace cortiq::CORTIQ_KERNELS {

// One panel times kCols activation rows: y[c * y_stride + r] for its rows r, of which `count` exist.
template <int kCols, class AnyPanel>
void gemm_tile(const AnyPanel& panel, const u8* act, float* y, size_t y_stride, size_t count) {
    F lanes[kBlock][kPanelParts][kCols];
    sum_groups<kCols>(panel, act, lanes);
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

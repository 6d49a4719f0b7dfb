// What the panels of every instruction set share: kPanelRows rows of weights (vec.h), unpacked group by group for
// products with many activation rows (gemm.h). Compiled once per instruction set, inside its own namespace.
#pragma once
#include "kernels/rows.h"

namespace cortiq::CORTIQ_KERNELS {

constexpr size_t kPanelParts = kPanelRows / kLanes;

// How many places for groups there are. Which group takes which is the instruction set's choice.
inline size_t panel_spots(size_t groups) { return round_up(groups, kBlock); }

// kGroupNbytes of fields for every group, then f32 scales [rows], with kGroupScales for every group.
template <class Weights, size_t kGroupNbytes, bool kGroupScales>
struct Panel {
    static size_t nbytes(size_t groups) {
        const size_t spots = panel_spots(groups);
        return spots * kGroupNbytes + (kGroupScales ? spots : 1) * kPanelRows * sizeof(float);
    }

    Panel(const MatrixView& w, u8* memory)
        : t(w), cols(w.cols), groups(t.groups), fields(memory),
          scales(reinterpret_cast<float*>(memory + panel_spots(groups) * kGroupNbytes)) {}

    u8* at(size_t spot) const { return fields + spot * kGroupNbytes; }
    // What the dot product of a group is multiplied by, and the sum over all groups.
    F factor(size_t spot, size_t part, F x_scale) const {
        return kGroupScales ? mul(load_f(scales + spot * kPanelRows + part * kLanes), x_scale) : x_scale;
    }
    F finish(F sum, size_t part) const { return kGroupScales ? sum : mul(sum, load_f(scales + part * kLanes)); }

    Weights t;
    size_t cols, groups;
    u8* fields;
    float* scales;
};

// total[part][c] += the dot products of the group at `spot` times their scales.
template <class AnyPanel, class Group, int kCols>
inline void add_scaled(const AnyPanel& panel, size_t spot, const Group& x, const I (*sum)[kCols], F (*total)[kCols]) {
    F scale[kCols];
#pragma GCC unroll 6
    for (int c = 0; c < kCols; c++) scale[c] = spread_f(x.scale(c));
#pragma GCC unroll 12
    for (size_t n = 0; n < kPanelParts * kCols; n++) {
        const size_t part = n / kCols, c = n % kCols;
        total[part][c] = fma(to_f(sum[part][c]), panel.factor(spot, part, scale[c]), total[part][c]);
    }
}

}  // namespace cortiq::CORTIQ_KERNELS

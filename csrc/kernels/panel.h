// What the panels of every instruction set share: kPanelRows rows of weights (vec.h), unpacked group by group for products with many
// activation rows (gemm.h). Compiled once per instruction set, inside its own namespace.
#pragma once
#include "kernels/rows.h"

namespace cortiq::CORTIQ_KERNELS {

constexpr size_t kPanelParts = kPanelRows / kLanes;

// Where group g stands in a panel of `groups`, lane by lane, and how many places there are.
inline size_t panel_spot(size_t g, size_t groups) { return g % kBlock * div_up(groups, kBlock) + g / kBlock; }
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

}  // namespace cortiq::CORTIQ_KERNELS

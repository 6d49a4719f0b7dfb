// q4tp (SPEC 3.2): planes [nibbles : 16 per group], [f16 lo, f16 step] and [5-bit codes] per row,
// w = (nibble - 8) * t[code]; cortiq/layouts/q4tp.py, operation by operation.
#pragma once
#include "layouts/ladder.h"
#include "layouts/q4_tiled.h"

namespace cortiq::CORTIQ_CODEC {

struct Q4TPLevels {
    static constexpr std::int32_t kLowest = 0, kSpan = 31;

    // Nearest of the integers -8 .. 7, ties to even.
    static inline Vf nearest(Vf x) {
        return (smaller(larger(x, all(-8)), all(7)) + 0x1.8p23f) - 0x1.8p23f;
    }

    template <std::size_t count>
    static inline void errors(const Vf* columns, const Vf* scales, Vf* out) {
        Vf inverse[count];
        for (std::size_t k = 0; k < count; k++) inverse[k] = 1.0f / scales[k], out[k] = Vf{};
        for (std::size_t i = 0; i < kGroup32; i++)
            for (std::size_t k = 0; k < count; k++) {
                const Vf rest = columns[i] - nearest(columns[i] * inverse[k]) * scales[k];
                out[k] += rest * rest;
            }
    }
};

static void q4tp_encode(const float* x, std::size_t groups, bool best, const LadderRow& row) {
    const Ends ends = log_scales(x, groups, 7.0f, row.logs);
    store_params(row.params, fit_params(ends.low, ends.high, Q4TPLevels::kSpan));
    float rungs[kRungs];
    expand_ladder(load_params(row.params), rungs);
    choose_codes<Q4TPLevels>(x, groups, best, rungs, row);
    for (std::size_t g = 0; g < groups; g++) {
        const float inverse = 1.0f / row.logs[g];
        std::uint8_t nibbles[kGroup32];
        for (std::size_t i = 0; i < kGroup32; i++) {
            const float ratio = x[kGroup32 * g + i] * inverse, above = ratio > -8.0f ? ratio : -8.0f;
            nibbles[i] = std::uint8_t(bits_of((above < 7.0f ? above : 7.0f) + 0x1.8p23f) + 8);
        }
        for (std::size_t k = 0; k < kGroup32 / 2; k++)
            row.weights[kGroup32 / 2 * g + k] = std::uint8_t(nibbles[2 * k] | nibbles[2 * k + 1] << 4);
    }
}

static void q4tp_decode(const MatrixView& w, std::size_t row, float* out) {
    const std::size_t groups = w.cols / kGroup32;
    const LadderView view = ladder_view(w, row, kGroup32 / 2);
    float rungs[kRungs];
    expand_ladder(view.params, rungs);
    const std::uint8_t* weights = view.weights;
    for (std::size_t g = 0; g < groups; g++, weights += kGroup32 / 2, out += kGroup32) {
        const float scale = rungs[code_at(view.codes, g)];
        for (std::size_t k = 0; k < kGroup32 / 2; k++) {
            out[2 * k] = float(int(weights[k] & 15) - 8) * scale;
            out[2 * k + 1] = float(int(weights[k] >> 4) - 8) * scale;
        }
    }
}

}  // namespace cortiq::CORTIQ_CODEC

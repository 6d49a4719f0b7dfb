// q2tp: planes [2-bit weights : 8 bytes per group], [f16 lo, f16 step] and [5-bit codes] per row, w = (c - 1.5) * t[code],
// t[0] = 0; cortiq/layouts/q2tp.py, operation by operation.
#pragma once
#include "layouts/ladder.h"

namespace cortiq::CORTIQ_CODEC {

struct Q2TPLevels {
    static constexpr std::int32_t kLowest = 1, kSpan = 30;

    static inline Vf nearest(Vf ratio) {
        return (smaller(larger(ratio + 1.5f, Vf{}), all(3)) + 0x1.8p23f) - 0x1.8p23f;
    }

    template <std::size_t count>
    static inline void errors(const Vf* columns, const Vf* scales, Vf* out) {
        Vf inverse[count];
        for (std::size_t k = 0; k < count; k++) inverse[k] = 1.0f / scales[k], out[k] = Vf{};
        for (std::size_t i = 0; i < kGroup32; i++)
            for (std::size_t k = 0; k < count; k++) {
                const Vf rest = columns[i] - (nearest(columns[i] * inverse[k]) - 1.5f) * scales[k];
                out[k] += rest * rest;
            }
    }
};

// Zero and the first 31 rungs.
static void q2tp_rungs(Params params, float* rungs) {
    float ladder[kRungs];
    expand_ladder(params, ladder);
    rungs[0] = 0;
    for (int code = 1; code < kRungs; code++) rungs[code] = ladder[code - 1];
}

// Squared error of a row on the ladder of `params`, each group at the best of five rungs.
static float q2tp_row_error(const float* x, std::size_t groups, Params params, const float* logs) {
    float rungs[kRungs], total = 0;
    q2tp_rungs(params, rungs);
    for (std::size_t g0 = 0; g0 < groups; g0 += CORTIQ_LANES) {
        const std::size_t count = groups - g0 < CORTIQ_LANES ? groups - g0 : CORTIQ_LANES;
        Vf columns[kGroup32];
        load_columns(x + kGroup32 * g0, count, columns);
        const Vi nearest = nearest_codes<Q2TPLevels>(logs + g0, count, params);
        RungSearch search(rungs, Q2TPLevels::kLowest, nearest);
        search.consider<Q2TPLevels, 5>(columns, nearest - 2);
        for (std::size_t g = 0; g < count; g++)
            if (logs[g0 + g] != kDead) total += search.least[g];
    }
    return total;
}

static Params q2tp_params(const float* x, std::size_t groups, Ends ends, const float* logs) {
    constexpr float kTops[] = {1.0f, 0.9f, 0.8f, 0.7f};
    Params best = fit_params(ends.low, ends.high, Q2TPLevels::kSpan);
    const float stored = f32_from_f16(best.low);
    float least = -kDead;
    for (const float factor : kTops) {
        const float top = ends.high > stored ? stored + (ends.high - stored) * factor : ends.high;
        const Params params = fit_params(ends.low, top, Q2TPLevels::kSpan);
        const float error = q2tp_row_error(x, groups, params, logs);
        if (error < least) best = params, least = error;
    }
    return best;
}

static void q2tp_encode(const float* x, std::size_t groups, bool best, const LadderRow& row) {
    const Ends ends = log_scales(x, groups, 1.5f, row.logs);
    store_params(row.params, q2tp_params(x, groups, ends, row.logs));
    float rungs[kRungs];
    q2tp_rungs(load_params(row.params), rungs);
    choose_codes<Q2TPLevels>(x, groups, best, rungs, row);
    for (std::size_t g = 0; g < groups; g++) {
        const float inverse = row.logs[g] > 0 ? 1.0f / row.logs[g] : 1.0f;
        std::uint8_t levels[kGroup32];
        for (std::size_t i = 0; i < kGroup32; i++) {
            const float level = x[kGroup32 * g + i] * inverse + 1.5f, above = level > 0.0f ? level : 0.0f;
            levels[i] = std::uint8_t(bits_of((above < 3.0f ? above : 3.0f) + 0x1.8p23f));
        }
        for (std::size_t k = 0; k < kGroup32 / 4; k++) {
            const std::uint8_t* four = levels + 4 * k;
            row.weights[kGroup32 / 4 * g + k] = std::uint8_t(four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6);
        }
    }
}

static void q2tp_decode(const MatrixView& w, std::size_t row, float* out) {
    const std::size_t groups = w.cols / kGroup32;
    const LadderView view = ladder_view(w, row, kGroup32 / 4);
    float rungs[kRungs];
    q2tp_rungs(view.params, rungs);
    const std::uint8_t* weights = view.weights;
    for (std::size_t g = 0; g < groups; g++, weights += kGroup32 / 4, out += kGroup32) {
        const float scale = rungs[code_at(view.codes, g)];
        for (std::size_t i = 0; i < kGroup32; i++)
            out[i] = (float(weights[i / 4] >> (2 * (i % 4)) & 3) - 1.5f) * scale;
    }
}

}  // namespace cortiq::CORTIQ_CODEC

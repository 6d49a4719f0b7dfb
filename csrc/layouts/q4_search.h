// Search of the scale of groups of 32 four-bit weights: cortiq/layouts/q4_search.py, operation by operation.
// Each lane holds one group; no lane depends on another.
#pragma once
#include <cstddef>

#include "layouts/lanes.h"

namespace cortiq::CORTIQ_CODEC {

static constexpr std::size_t kGroup32 = 32;

// The weight of largest magnitude is put on level -d, then on level d.
static constexpr float kFactors[] = {-1 / 7.25f, -1 / 7.5f, -1 / 7.75f, -1 / 8.0f, -1 / 8.25f, -1 / 8.5f,
                                     -1 / 8.75f, -1 / 9.0f, 1 / 6.25f,  1 / 6.5f,  1 / 6.75f,  1 / 7.0f,
                                     1 / 7.25f,  1 / 7.5f,  1 / 7.75f,  1 / 8.0f};
static constexpr std::size_t kFactorCount = sizeof kFactors / sizeof kFactors[0];
static constexpr std::size_t kAtOnce = 4;  // independent candidates evaluated together: hides the latency of the sums
static constexpr float kLeastSum = 0x1p-126f;

struct Gain {
    Vf gain, a, b;
};

// Weights w of CORTIQ_LANES groups, their importance v, and v w: weight i of each.
struct Columns {
    Vf w[kGroup32], v[kGroup32], vw[kGroup32];
};

static inline void weigh(Columns& columns) {
    Vf mean{};
    for (const Vf w : columns.w) mean += w * w;
    mean /= float(kGroup32);
    for (std::size_t i = 0; i < kGroup32; i++) {
        columns.v[i] = square_root(columns.w[i] * columns.w[i] + mean);
        columns.vw[i] = columns.w[i] * columns.v[i];
    }
}

// Gain s (2 A - s B) of `count` scales per group, with A = sum(v w q) and B = sum(v q q).
template <std::size_t count>
static inline void gains(const Columns& columns, const Vf* scales, Gain* out) {
    Vf inverse[count], a[count], b[count];
    for (std::size_t k = 0; k < count; k++) inverse[k] = 1.0f / scales[k], a[k] = Vf{}, b[k] = Vf{};
    for (std::size_t i = 0; i < kGroup32; i++) {
        const Vf w = columns.w[i], v = columns.v[i], vw = columns.vw[i];
        for (std::size_t k = 0; k < count; k++) {
            const Vf q = nearest_code(w * inverse[k]);
            a[k] += vw * q;
            b[k] += v * (q * q);
        }
    }
    for (std::size_t k = 0; k < count; k++)
        out[k] = {scales[k] * ((a[k] + a[k]) - scales[k] * b[k]), a[k], b[k]};
}

// Scales of the groups, whose weights are in columns.w. `plain` are the scales to beat.
static Vf best_scales(Columns& columns, Vf plain) {
    weigh(columns);
    Vf extreme = columns.w[0];
    for (std::size_t i = 1; i < kGroup32; i++)
        extreme = magnitude(columns.w[i]) > magnitude(extreme) ? columns.w[i] : extreme;
    Gain start;
    gains<1>(columns, &plain, &start);
    Vf best = plain, best_gain = start.gain;
    for (std::size_t f = 0; f < kFactorCount; f += kAtOnce) {
        Vf first[kAtOnce], second[kAtOnce];
        Gain at_first[kAtOnce], at_second[kAtOnce];
        for (std::size_t k = 0; k < kAtOnce; k++) first[k] = as_f16_scale(extreme * kFactors[f + k]);
        gains<kAtOnce>(columns, first, at_first);
        for (std::size_t k = 0; k < kAtOnce; k++)
            second[k] = as_f16_scale(at_first[k].a / larger(at_first[k].b, all(kLeastSum)));
        gains<kAtOnce>(columns, second, at_second);
        for (std::size_t k = 0; k < kAtOnce; k++) {
            best = at_first[k].gain > best_gain ? first[k] : best;
            best_gain = larger(at_first[k].gain, best_gain);
            best = at_second[k].gain > best_gain ? second[k] : best;
            best_gain = larger(at_second[k].gain, best_gain);
        }
    }
    return best;
}

}  // namespace cortiq::CORTIQ_CODEC

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

struct Gain {
    Vf gain, a, b;
};

// Gain s (2 A - s B) of `count` scales per group, with A = sum(w q) and B = sum(q q).
template <std::size_t count>
static inline void gains(const Vf* columns, const Vf* scales, Gain* out) {
    Vf inverse[count], a[count], b[count];
    for (std::size_t k = 0; k < count; k++) inverse[k] = 1.0f / scales[k], a[k] = Vf{}, b[k] = Vf{};
    for (std::size_t i = 0; i < kGroup32; i++) {
        const Vf w = columns[i];
        for (std::size_t k = 0; k < count; k++) {
            const Vf q = nearest_code(w * inverse[k]);
            a[k] += w * q;
            b[k] = add_square(q, b[k]);
        }
    }
    for (std::size_t k = 0; k < count; k++)
        out[k] = {scales[k] * ((a[k] + a[k]) - scales[k] * b[k]), a[k], b[k]};
}

// The nearest half that is neither zero nor infinite, with the sign kept.
static inline Vf as_f16_scale(Vf x) {
    const Vf m = nearest_half(smaller(larger(magnitude(x), all(kF16Step)), all(kF16Max)));
    return floats(bits(m) | (bits(x) & Vi(bits(all(-0.0f)))));
}

// Scales of CORTIQ_LANES groups; columns[i] holds weight i of each. `plain` are the scales to beat.
static Vf best_scales(const Vf* columns, Vf plain) {
    Vf extreme = columns[0];
    for (std::size_t i = 1; i < kGroup32; i++)
        extreme = magnitude(columns[i]) > magnitude(extreme) ? columns[i] : extreme;
    Gain start;
    gains<1>(columns, &plain, &start);
    Vf best = plain, best_gain = start.gain;
    for (std::size_t f = 0; f < kFactorCount; f += kAtOnce) {
        Vf first[kAtOnce], second[kAtOnce];
        Gain at_first[kAtOnce], at_second[kAtOnce];
        for (std::size_t k = 0; k < kAtOnce; k++) first[k] = as_f16_scale(extreme * kFactors[f + k]);
        gains<kAtOnce>(columns, first, at_first);
        for (std::size_t k = 0; k < kAtOnce; k++)
            second[k] = as_f16_scale(at_first[k].a / larger(at_first[k].b, all(1.0f)));
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

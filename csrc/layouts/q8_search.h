// Search of the scale of a row of 8-bit weights: cortiq/layouts/q8_search.py, operation by operation.
// Column i of a row belongs to sum i mod 16, whatever the vectors; each lane adds in the order of the columns.
#pragma once
#include <cstddef>
#include <cstring>

#include "layouts/lanes.h"

namespace cortiq::CORTIQ_CODEC {

static constexpr std::size_t kSums = 16, kVectors = kSums / CORTIQ_LANES;

// The weight of largest magnitude is put on level -d, then on level d.
static constexpr float kRowFactors[] = {-1 / 126.0f, -1 / 126.5f, -1 / 127.0f, -1 / 127.5f, -1 / 128.0f, -1 / 128.5f,
                                        -1 / 129.0f, -1 / 129.5f, 1 / 126.0f,  1 / 126.5f,  1 / 127.0f,  1 / 127.5f,
                                        1 / 128.0f,  1 / 128.5f,  1 / 129.0f,  1 / 129.5f};
static constexpr std::size_t kRowFactorCount = sizeof kRowFactors / sizeof kRowFactors[0];
static constexpr std::size_t kRowsAtOnce = 4;  // candidates evaluated in one pass over the row

// Calls step(i, x) for the row in pieces of kSums columns from i on, the last one filled up with zeros.
template <class Step>
static inline void in_sixteens(const float* x, std::size_t n, Step step) {
    const std::size_t whole = n / kSums * kSums;
    for (std::size_t i = 0; i < whole; i += kSums) step(i, x + i);
    if (whole == n) return;
    float rest[kSums] = {};
    std::memcpy(rest, x + whole, (n - whole) * sizeof(float));
    step(whole, rest);
}

// The sixteen sums as one: halves are added until one is left.
static inline float total(const Vf (&sums)[kVectors]) {
    float s[kSums];
    for (std::size_t v = 0; v < kVectors; v++) store(s + CORTIQ_LANES * v, sums[v]);
    for (std::size_t half = kSums / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
}

// Importance v of each weight; room for n rounded up to kSums.
static void weigh_row(const float* x, std::size_t n, float* v) {
    Vf sums[kVectors] = {};
    in_sixteens(x, n, [&](std::size_t, const float* sixteen) {
        for (std::size_t k = 0; k < kVectors; k++) {
            const Vf w = load(sixteen + CORTIQ_LANES * k);
            sums[k] += w * w;
        }
    });
    const Vf mean = all(total(sums) / float(n));
    in_sixteens(x, n, [&](std::size_t i, const float* sixteen) {
        for (std::size_t k = 0; k < kVectors; k++) {
            const Vf w = load(sixteen + CORTIQ_LANES * k);
            store(v + i + CORTIQ_LANES * k, square_root(w * w + mean));
        }
    });
}

// sum(v (w - s q)^2) of `count` scales.
template <std::size_t count>
static void row_errors(const float* x, std::size_t n, const float* v, const float* scales, float* errors) {
    Vf sums[count][kVectors] = {};
    in_sixteens(x, n, [&](std::size_t i, const float* sixteen) {
        for (std::size_t k = 0; k < kVectors; k++) {
            const Vf w = load(sixteen + CORTIQ_LANES * k), importance = load(v + i + CORTIQ_LANES * k);
            for (std::size_t c = 0; c < count; c++) {
                const Vf difference = w - nearest_code<-128, 127>(w * (1.0f / scales[c])) * scales[c];
                sums[c][k] += importance * (difference * difference);
            }
        }
    });
    for (std::size_t c = 0; c < count; c++) errors[c] = total(sums[c]);
}

// The scale of a row. `plain` is the one to beat; `v` is scratch for n floats, rounded up to 16.
static float q8_best_scale(const float* x, std::size_t n, float plain, float* v) {
    weigh_row(x, n, v);
    float extreme = x[0], best = plain, least;
    for (std::size_t i = 1; i < n; i++)
        extreme = __builtin_fabsf(x[i]) > __builtin_fabsf(extreme) ? x[i] : extreme;
    row_errors<1>(x, n, v, &plain, &least);
    for (std::size_t f = 0; f < kRowFactorCount; f += kRowsAtOnce) {
        float candidates[kRowsAtOnce], errors[kRowsAtOnce];
        for (std::size_t c = 0; c < kRowsAtOnce; c++)
            candidates[c] = as_f16_scale(all(extreme * kRowFactors[f + c]))[0];
        row_errors<kRowsAtOnce>(x, n, v, candidates, errors);
        for (std::size_t c = 0; c < kRowsAtOnce; c++)
            if (errors[c] < least) best = candidates[c], least = errors[c];
    }
    return best;
}

// Codes by multiplication with 1 / scale.
static void q8_quantize_best(const float* x, std::size_t n, float scale, std::uint8_t* out) {
    const float inverse = 1.0f / scale;
    for (std::size_t i = 0; i < n; i++) {
        const std::int32_t zero = 0x4b400000, rounded = std::int32_t(bits_of(x[i] * inverse + 0x1.8p23f)) - zero;
        const std::int32_t above = rounded > -128 ? rounded : -128;
        out[i] = std::uint8_t(above < 127 ? above : 127);
    }
}

}  // namespace cortiq::CORTIQ_CODEC

// Eight f32 lanes in plain C++: the definition the vector versions have to match bit for bit.
// The including file names its own namespace in CORTIQ_OPS_NS; nothing here is shared between instruction sets.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define CORTIQ_INLINE static inline __attribute__((always_inline))
#define CORTIQ_LAMBDA __attribute__((always_inline))

namespace cortiq::CORTIQ_OPS_NS {

struct F8 {
    float v[8];
};

// Sums of squares in f64, one per lane.
struct D8 {
    double v[8];
};

#define CORTIQ_LANES(expression)                 \
    F8 r;                                        \
    for (int i = 0; i < 8; i++) r.v[i] = (expression); \
    return r

CORTIQ_INLINE F8 load(const float* p) {
    F8 r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
}
CORTIQ_INLINE void store(float* p, F8 a) { std::memcpy(p, a.v, sizeof a.v); }
CORTIQ_INLINE F8 splat(float x) { CORTIQ_LANES(x); }
CORTIQ_INLINE F8 add(F8 a, F8 b) { CORTIQ_LANES(a.v[i] + b.v[i]); }
CORTIQ_INLINE F8 sub(F8 a, F8 b) { CORTIQ_LANES(a.v[i] - b.v[i]); }
CORTIQ_INLINE F8 mul(F8 a, F8 b) { CORTIQ_LANES(a.v[i] * b.v[i]); }
CORTIQ_INLINE F8 div(F8 a, F8 b) { CORTIQ_LANES(a.v[i] / b.v[i]); }
CORTIQ_INLINE F8 fma(F8 a, F8 b, F8 c) { CORTIQ_LANES(__builtin_fmaf(a.v[i], b.v[i], c.v[i])); }
// The second operand where they are unordered, like the x86 instructions: a NaN passed second survives.
CORTIQ_INLINE F8 max(F8 a, F8 b) { CORTIQ_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
CORTIQ_INLINE F8 min(F8 a, F8 b) { CORTIQ_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
CORTIQ_INLINE F8 abs(F8 a) { CORTIQ_LANES(std::bit_cast<float>(std::bit_cast<std::uint32_t>(a.v[i]) & 0x7fffffffu)); }
CORTIQ_INLINE F8 with_sign_of(F8 magnitude, F8 sign) {
    CORTIQ_LANES(std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude.v[i]) |
                                      (std::bit_cast<std::uint32_t>(sign.v[i]) & 0x80000000u)));
}
// a < b ? x : y
CORTIQ_INLINE F8 select_less(F8 a, F8 b, F8 x, F8 y) { CORTIQ_LANES(a.v[i] < b.v[i] ? x.v[i] : y.v[i]); }
// Lanes lo <= i < hi of a, `fill` elsewhere.
CORTIQ_INLINE F8 keep_lanes(F8 a, int lo, int hi, float fill) { CORTIQ_LANES(lo <= i && i < hi ? a.v[i] : fill); }
// The sum ((0+4)+(2+6)) + ((1+5)+(3+7)), and the largest in the same order.
CORTIQ_INLINE float sum_lanes(F8 a) {
    return ((a.v[0] + a.v[4]) + (a.v[2] + a.v[6])) + ((a.v[1] + a.v[5]) + (a.v[3] + a.v[7]));
}
CORTIQ_INLINE float larger(float a, float b) { return a > b ? a : b; }
CORTIQ_INLINE float max_lanes(F8 a) {
    return larger(larger(larger(a.v[0], a.v[4]), larger(a.v[2], a.v[6])),
                  larger(larger(a.v[1], a.v[5]), larger(a.v[3], a.v[7])));
}
// 2^n for a lane that holds 1.5 * 2^23 + n.
CORTIQ_INLINE F8 exp2_of_biased(F8 a) {
    CORTIQ_LANES(std::bit_cast<float>((std::bit_cast<std::uint32_t>(a.v[i]) - 0x4b400000u + 127u) << 23));
}

CORTIQ_INLINE float half_to_float(std::uint16_t h) {
    const std::uint32_t sign = std::uint32_t(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 1023u;
    if (exponent == 0) {  // exact: a multiple of 2^-24
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa ? 0x400000u : 0u) | mantissa << 13);
    return std::bit_cast<float>(sign | (exponent + 112u) << 23 | mantissa << 13);
}
// Rounds to the nearest, ties to even; too large becomes infinite.
CORTIQ_INLINE std::uint16_t float_to_half(float f) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(f), sign = (bits >> 16) & 0x8000u;
    std::uint32_t u = bits & 0x7fffffffu;
    if (u > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((u >> 13) & 0x1ffu));
    if (u >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (u < 0x38800000u) {  // below the smallest normal half: adding 1/2 rounds at 2^-24
        const std::uint32_t rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>(u) + 0.5f) - 0x3f000000u;
        return static_cast<std::uint16_t>(sign | rounded);
    }
    u += 0xfffu + ((u >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | (u - 0x38000000u) >> 13);
}
CORTIQ_INLINE F8 load_half(const std::uint16_t* p) { CORTIQ_LANES(half_to_float(p[i])); }
CORTIQ_INLINE void store_half(std::uint16_t* p, F8 a) {
    for (int i = 0; i < 8; i++) p[i] = float_to_half(a.v[i]);
}

CORTIQ_INLINE D8 zero_squares() { return D8{}; }
CORTIQ_INLINE D8 add_squares(D8 sum, F8 a) {
    // The product of two f32 is exact in f64, so this rounds once, as a fused operation does.
    for (int i = 0; i < 8; i++) sum.v[i] += static_cast<double>(a.v[i]) * static_cast<double>(a.v[i]);
    return sum;
}
CORTIQ_INLINE void store_squares(double* p, D8 sum) { std::memcpy(p, sum.v, sizeof sum.v); }

#undef CORTIQ_LANES

}  // namespace cortiq::CORTIQ_OPS_NS

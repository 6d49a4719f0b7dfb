// Vectors of CORTIQ_LANES floats in the compiler's generic vector types: one source for every instruction set.
// Only IEEE operations, so that a lane computes what NumPy computes.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/half.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace cortiq::CORTIQ_CODEC {

typedef float Vf __attribute__((vector_size(4 * CORTIQ_LANES)));
typedef std::int32_t Vi __attribute__((vector_size(4 * CORTIQ_LANES)));

static inline Vi bits(Vf x) { return reinterpret_cast<Vi>(x); }
static inline Vf floats(Vi x) { return reinterpret_cast<Vf>(x); }
static inline Vf all(float x) { return x - Vf{}; }
static inline Vf larger(Vf a, Vf b) { return a > b ? a : b; }
static inline Vf smaller(Vf a, Vf b) { return a < b ? a : b; }
static inline Vf magnitude(Vf x) { return floats(bits(x) & 0x7fffffff); }

static inline Vf load(const float* p) {
    Vf x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

static inline void store(float* p, Vf x) { std::memcpy(p, &x, sizeof x); }

// Nearest of the integers -8 .. 7 to |x| < 2^22, ties to even. Adding 1.5 * 2^23 leaves the integer in the low bits of
// the float, where it is clamped: bit patterns of positive floats are ordered as the floats are.
static inline Vf nearest_code(Vf x) {
    const Vi rounded = bits(x + 0x1.8p23f), low = bits(all(0x1.8p23f - 8)), high = bits(all(0x1.8p23f + 7));
    const Vi above = rounded > low ? rounded : low;
    return floats(above < high ? above : high) - 0x1.8p23f;
}

static inline Vf square_root(Vf x) {
#if CORTIQ_LANES == 16
    return reinterpret_cast<Vf>(_mm512_sqrt_ps(reinterpret_cast<__m512>(x)));
#elif CORTIQ_LANES == 8
    return reinterpret_cast<Vf>(_mm256_sqrt_ps(reinterpret_cast<__m256>(x)));
#else
    for (int i = 0; i < CORTIQ_LANES; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

// Nearest half, ties to even, of a magnitude from 2^-24 to 65504.
static inline Vf nearest_half(Vf x) {
    const Vi b = bits(x);
    const Vf normal = floats((b + 0xfff + ((b >> 13) & 1)) & ~0x1fff);
    const Vf subnormal = (x + 0.5f) - 0.5f;  // floats from 0.5 to 1 are 2^-24 apart
    return x < kF16Tiny ? subnormal : normal;
}

// The nearest half that is neither zero nor infinite, with the sign kept.
static inline Vf as_f16_scale(Vf x) {
    const Vf m = nearest_half(smaller(larger(magnitude(x), all(kF16Step)), all(kF16Max)));
    return floats(bits(m) | (bits(x) & Vi(bits(all(-0.0f)))));
}

}  // namespace cortiq::CORTIQ_CODEC

// Eight f32 lanes with AVX2, FMA and F16C: the operations of f32x8_scalar.h, bit for bit.
// The including file names its own namespace in CORTIQ_OPS_NS; nothing here is shared between instruction sets.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define CORTIQ_INLINE static inline __attribute__((always_inline))
#define CORTIQ_LAMBDA __attribute__((always_inline))

namespace cortiq::CORTIQ_OPS_NS {

struct F8 {
    __m256 v;
};

// Sums of squares in f64, one per lane.
struct D8 {
    __m256d lo, hi;
};

CORTIQ_INLINE F8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
CORTIQ_INLINE void store(float* p, F8 a) { _mm256_storeu_ps(p, a.v); }
CORTIQ_INLINE F8 splat(float x) { return {_mm256_set1_ps(x)}; }
CORTIQ_INLINE F8 add(F8 a, F8 b) { return {_mm256_add_ps(a.v, b.v)}; }
CORTIQ_INLINE F8 sub(F8 a, F8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
CORTIQ_INLINE F8 mul(F8 a, F8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
CORTIQ_INLINE F8 div(F8 a, F8 b) { return {_mm256_div_ps(a.v, b.v)}; }
CORTIQ_INLINE F8 fma(F8 a, F8 b, F8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
CORTIQ_INLINE F8 max(F8 a, F8 b) { return {_mm256_max_ps(a.v, b.v)}; }
CORTIQ_INLINE F8 min(F8 a, F8 b) { return {_mm256_min_ps(a.v, b.v)}; }
CORTIQ_INLINE F8 abs(F8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
CORTIQ_INLINE F8 with_sign_of(F8 magnitude, F8 sign) {
    return {_mm256_or_ps(magnitude.v, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign.v))};
}
CORTIQ_INLINE F8 select_less(F8 a, F8 b, F8 x, F8 y) {
    return {_mm256_blendv_ps(y.v, x.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
CORTIQ_INLINE F8 keep_lanes(F8 a, int lo, int hi, float fill) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i out = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(lo), lane),
                                        _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(hi - 1)));
    return {_mm256_blendv_ps(a.v, _mm256_set1_ps(fill), _mm256_castsi256_ps(out))};
}
CORTIQ_INLINE float sum_lanes(F8 a) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
CORTIQ_INLINE float max_lanes(F8 a) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
CORTIQ_INLINE F8 exp2_of_biased(F8 a) {
    const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(a.v), _mm256_set1_epi32(0x4b400000 - 127));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(n, 23))};
}

CORTIQ_INLINE std::uint16_t float_to_half(float f) {
    return static_cast<std::uint16_t>(
        _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), 0));
}
CORTIQ_INLINE F8 load_half(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
CORTIQ_INLINE void store_half(std::uint16_t* p, F8 a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

CORTIQ_INLINE D8 zero_squares() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
CORTIQ_INLINE D8 add_squares(D8 sum, F8 a) {
    const __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(a.v)), hi = _mm256_cvtps_pd(_mm256_extractf128_ps(a.v, 1));
    return {_mm256_fmadd_pd(lo, lo, sum.lo), _mm256_fmadd_pd(hi, hi, sum.hi)};
}
CORTIQ_INLINE void store_squares(double* p, D8 sum) {
    _mm256_storeu_pd(p, sum.lo);
    _mm256_storeu_pd(p + 4, sum.hi);
}

}  // namespace cortiq::CORTIQ_OPS_NS

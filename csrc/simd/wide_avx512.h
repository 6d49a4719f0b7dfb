// Sixteen f32 lanes with AVX-512, for loops whose lanes have nothing to do with one another: the operations of
// f32x8_scalar.h, bit for bit.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cortiq::CORTIQ_OPS_NS {

struct FW {
    __m512 v;
};
constexpr std::size_t kWide = 16;

template <class V>
CORTIQ_INLINE V load(const float* p) {
    if constexpr (std::is_same_v<V, FW>) return {_mm512_loadu_ps(p)};
    else return load(p);
}
template <class V>
CORTIQ_INLINE V load(const std::uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
template <class V>
CORTIQ_INLINE V splat(float x) {
    if constexpr (std::is_same_v<V, FW>) return {_mm512_set1_ps(x)};
    else return splat(x);
}
CORTIQ_INLINE void store(float* p, FW a) { _mm512_storeu_ps(p, a.v); }
CORTIQ_INLINE FW add(FW a, FW b) { return {_mm512_add_ps(a.v, b.v)}; }
CORTIQ_INLINE FW sub(FW a, FW b) { return {_mm512_sub_ps(a.v, b.v)}; }
CORTIQ_INLINE FW mul(FW a, FW b) { return {_mm512_mul_ps(a.v, b.v)}; }
CORTIQ_INLINE FW div(FW a, FW b) { return {_mm512_div_ps(a.v, b.v)}; }
CORTIQ_INLINE FW fma(FW a, FW b, FW c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
CORTIQ_INLINE FW max(FW a, FW b) { return {_mm512_max_ps(a.v, b.v)}; }
CORTIQ_INLINE FW min(FW a, FW b) { return {_mm512_min_ps(a.v, b.v)}; }
CORTIQ_INLINE FW abs(FW a) { return {_mm512_abs_ps(a.v)}; }
CORTIQ_INLINE FW with_sign_of(FW magnitude, FW sign) {
    return {_mm512_or_ps(magnitude.v, _mm512_and_ps(_mm512_set1_ps(-0.0f), sign.v))};
}
CORTIQ_INLINE FW select_less(FW a, FW b, FW x, FW y) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
CORTIQ_INLINE FW keep_lanes(FW a, int lo, int hi, float fill) {
    auto below = [](int n) { return n <= 0 ? 0u : n >= 16 ? 0xffffu : (1u << n) - 1; };
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(below(hi) & ~below(lo)), _mm512_set1_ps(fill), a.v)};
}
CORTIQ_INLINE FW exp2_of_biased(FW a) {
    const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x4b400000 - 127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(n, 23))};
}
CORTIQ_INLINE void in_eights(const FW (&wide)[2], F8 (&eights)[4]) {
    for (int i = 0; i < 2; i++) {
        eights[2 * i] = {_mm512_castps512_ps256(wide[i].v)};
        eights[2 * i + 1] = {_mm512_extractf32x8_ps(wide[i].v, 1)};
    }
}

}  // namespace cortiq::CORTIQ_OPS_NS

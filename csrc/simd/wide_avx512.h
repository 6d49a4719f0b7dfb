// Sixteen f32 lanes with AVX-512, for loops whose lanes have nothing to do with one another.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace cortiq::CORTIQ_OPS_NS {

struct FW {
    __m512 v;
};
constexpr std::size_t kWide = 16;

CORTIQ_INLINE FW load_wide(const float* p) { return {_mm512_loadu_ps(p)}; }
CORTIQ_INLINE FW load_wide(const std::uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
CORTIQ_INLINE void store(float* p, FW a) { _mm512_storeu_ps(p, a.v); }
CORTIQ_INLINE FW splat_wide(float x) { return {_mm512_set1_ps(x)}; }
CORTIQ_INLINE FW fma(FW a, FW b, FW c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

}  // namespace cortiq::CORTIQ_OPS_NS

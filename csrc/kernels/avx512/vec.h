// Registers of AVX-512 under the names that the shared drivers (gemm.h, dense.h) use.
#pragma once
#include <immintrin.h>

#include "kernels/rows.h"

namespace cortiq::CORTIQ_KERNELS {

using F = __m512;   // one float per row of a panel
using I = __m512i;
constexpr size_t kLanes = 16, kPanelRows = 32;

inline I load_i(const void* p) { return _mm512_loadu_si512(p); }
inline __m256i load_256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void store_i(void* p, I v) { _mm512_storeu_si512(p, v); }
inline I spread_i32(const void* p) { return _mm512_set1_epi32(load_as<int>(p)); }

// Asks for the cache lines that are due in 4 KiB, where that helps. The prefetch of Intel's processors stops at the end of
// a page and starts too late behind it; that of AMD's goes on, and only suffers from being told (decision 0004).
template <size_t kBytes>
inline void fetch_ahead(const u8* p) {
    for (size_t i = 0; i < kBytes; i += 64) _mm_prefetch(p + 4096 + i, _MM_HINT_T0);
}

inline F zero_f() { return _mm512_setzero_ps(); }
inline F load_f(const float* p) { return _mm512_loadu_ps(p); }
inline void store_f(float* p, F v) { _mm512_storeu_ps(p, v); }
inline F spread_f(const float* p) { return _mm512_set1_ps(*p); }
inline F to_f(I v) { return _mm512_cvtepi32_ps(v); }
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }

// ((0+4)+(2+6)) + ((1+5)+(3+7)), the order every instruction set keeps, and +0.
inline float sum_lanes(__m256 v) {
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    h = _mm_add_ss(h, _mm_movehdup_ps(h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_setzero_ps()));
}

// Sixteen floats: column k in lane k % 16.
using F16x = __m512;
inline F16x zero16() { return _mm512_setzero_ps(); }
inline F16x load16(const float* p) { return _mm512_loadu_ps(p); }
inline void store16(float* p, F16x v) { _mm512_storeu_ps(p, v); }
inline F16x mul16(F16x a, F16x b) { return _mm512_mul_ps(a, b); }
inline F16x fma16(F16x a, F16x b, F16x c) { return _mm512_fmadd_ps(a, b, c); }
inline float sum16(F16x v) {
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    return sum_lanes(_mm256_add_ps(_mm512_castps512_ps256(v), high));
}

// Sixteen consecutive weights of a float layout.
inline F16x weights16(F32, const u8* p) { return _mm512_loadu_ps(p); }
inline F16x weights16(F16, const u8* p) { return _mm512_cvtph_ps(load_256(p)); }
inline F16x weights16(BF16, const u8* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_256(p)), 16));
}

}  // namespace cortiq::CORTIQ_KERNELS

// Registers of AVX2 under the names that the shared drivers (gemm.h, dense.h) use.
#pragma once
#include <immintrin.h>

#include "kernels/rows.h"

namespace cortiq::CORTIQ_KERNELS {

using F = __m256;   // one float per row of a panel
using I = __m256i;
constexpr size_t kLanes = 8, kPanelRows = 32;

inline I load_i(const void* p) { return _mm256_loadu_si256(static_cast<const I*>(p)); }
inline __m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void store_i(void* p, I v) { _mm256_storeu_si256(static_cast<I*>(p), v); }
// In one instruction, where the compiler would now and then go through a general register.
inline I spread_i32(const void* p) {
    I v;
    asm("vpbroadcastd %1, %0" : "=x"(v) : "m"(*static_cast<const u8(*)[4]>(p)));
    return v;
}
inline I two(const void* low, const void* high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(low)), load_128(high), 1);
}

inline F zero_f() { return _mm256_setzero_ps(); }
inline F load_f(const float* p) { return _mm256_loadu_ps(p); }
inline void store_f(float* p, F v) { _mm256_storeu_ps(p, v); }
inline F spread_f(const float* p) { return _mm256_broadcast_ss(p); }
inline F to_f(I v) { return _mm256_cvtepi32_ps(v); }
inline F add(F a, F b) { return _mm256_add_ps(a, b); }
inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }

// ((0+4)+(2+6)) + ((1+5)+(3+7)), the order every instruction set keeps, and +0.
inline float sum_lanes(__m256 v) {
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    h = _mm_add_ss(h, _mm_movehdup_ps(h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_setzero_ps()));
}

// The same of eight vectors at once.
[[gnu::always_inline]] inline __m256 sum_lanes8(const __m256* v) {
    __m256 four[4], two[2];
    for (int i = 0; i < 4; i++)
        four[i] = _mm256_add_ps(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20), _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
    for (int i = 0; i < 2; i++) {
        const __m256d a = _mm256_castps_pd(four[2 * i]), b = _mm256_castps_pd(four[2 * i + 1]);
        two[i] = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
    }
    const __m256 sum = _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88), _mm256_shuffle_ps(two[0], two[1], 0xdd));
    return _mm256_add_ps(sum, _mm256_setzero_ps());
}

// The lanes of rows from `count` on, which do not exist.
template <int kCols>
inline void clear_rows(__m256 (&lanes)[kCols][8], size_t count) {
    for (int c = 0; c < kCols; c++)
        for (size_t i = count; i < 8; i++) lanes[c][i] = _mm256_setzero_ps();
}

inline void store_part(float* p, __m256 v, size_t count) {
    if (count == 8) return store_f(p, v);
    float all[8];
    store_f(all, v);
    std::memcpy(p, all, count * sizeof(float));
}

// Sixteen floats: column k in lane k % 16.
struct F16x {
    __m256 low, high;
};
inline F16x zero16() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F16x load16(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store16(float* p, F16x v) { _mm256_storeu_ps(p, v.low), _mm256_storeu_ps(p + 8, v.high); }
inline F16x mul16(F16x a, F16x b) { return {mul(a.low, b.low), mul(a.high, b.high)}; }
inline F16x fma16(F16x a, F16x b, F16x c) { return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)}; }
inline float sum16(F16x v) { return sum_lanes(_mm256_add_ps(v.low, v.high)); }

// Sixteen consecutive weights of a float layout.
inline F16x weights16(F32, const u8* p) { return load16(reinterpret_cast<const float*>(p)); }
inline F16x weights16(F16, const u8* p) { return {_mm256_cvtph_ps(load_128(p)), _mm256_cvtph_ps(load_128(p + 16))}; }
inline F16x weights16(BF16, const u8* p) {
    auto widen = [](__m128i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)); };
    return {widen(load_128(p)), widen(load_128(p + 16))};
}

}  // namespace cortiq::CORTIQ_KERNELS

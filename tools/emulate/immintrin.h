// Stands in for the compiler's header when AVX-512 code is built for a processor without it: SIMDe's portable versions
// over AVX2, under the names of the intrinsics.
#pragma once
#include_next <immintrin.h>
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

// Missing in SIMDe 0.7.4, or missing there in this form.
static inline __m256 emulated_extractf32x8(__m512 v, int half) {
    float lanes[16];
    __builtin_memcpy(lanes, &v, sizeof lanes);
    return _mm256_loadu_ps(lanes + 8 * half);
}
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(v, half) emulated_extractf32x8(v, half)
static inline __m512 emulated_cvtph(__m256i halves) {
    const __m256 parts[2] = {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                             _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
    __m512 v;
    __builtin_memcpy(&v, parts, sizeof v);
    return v;
}
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(halves) emulated_cvtph(halves)
static inline __m512 emulated_cvtepi32(__m512i v) {
    __m256i parts[2];
    __builtin_memcpy(parts, &v, sizeof v);
    const __m256 floats[2] = {_mm256_cvtepi32_ps(parts[0]), _mm256_cvtepi32_ps(parts[1])};
    __m512 out;
    __builtin_memcpy(&out, floats, sizeof out);
    return out;
}
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(v) emulated_cvtepi32(v)
static inline __mmask8 emulated_cmpgt(__m256i a, __m256i b) {
    return __mmask8(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b))));
}
#undef _mm256_cmpgt_epi32_mask
#define _mm256_cmpgt_epi32_mask(a, b) emulated_cmpgt(a, b)
static inline __m256 emulated_div(__mmask8 mask, __m256 a, __m256 b) {
    float lanes[8];
    _mm256_storeu_ps(lanes, _mm256_div_ps(a, b));
    for (int i = 0; i < 8; i++)
        if (!(mask >> i & 1)) lanes[i] = 0;
    return _mm256_loadu_ps(lanes);
}
#undef _mm256_maskz_div_ps
#define _mm256_maskz_div_ps(mask, a, b) emulated_div(mask, a, b)
static inline __m512i emulated_shuffle_i64x2(__m512i a, __m512i b, int order) {
    long long from[2][8], to[8];
    __builtin_memcpy(from[0], &a, sizeof a);
    __builtin_memcpy(from[1], &b, sizeof b);
    for (int i = 0; i < 8; i++) to[i] = from[i / 4][(order >> i / 2 * 2 & 3) * 2 + i % 2];
    __m512i v;
    __builtin_memcpy(&v, to, sizeof v);
    return v;
}
#undef _mm512_shuffle_i64x2
#define _mm512_shuffle_i64x2(a, b, order) emulated_shuffle_i64x2(a, b, order)
static inline __m512i emulated_loadu_epi8(__mmask64 mask, const void* p) {
    unsigned char bytes[64] = {};
    for (int i = 0; i < 64; i++)
        if (mask >> i & 1) bytes[i] = static_cast<const unsigned char*>(p)[i];
    __m512i v;
    __builtin_memcpy(&v, bytes, sizeof v);
    return v;
}
#undef _mm512_maskz_loadu_epi8
#define _mm512_maskz_loadu_epi8(mask, p) emulated_loadu_epi8(mask, p)
static inline __m512i emulated_cvtepu16(__m256i words) {
    const __m256i parts[2] = {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(words)),
                              _mm256_cvtepu16_epi32(_mm256_extracti128_si256(words, 1))};
    __m512i v;
    __builtin_memcpy(&v, parts, sizeof v);
    return v;
}
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(words) emulated_cvtepu16(words)
static inline __m512i emulated_cvtps_epi32(__m512 v) {
    float lanes[16];
    __builtin_memcpy(lanes, &v, sizeof lanes);
    const __m256i parts[2] = {_mm256_cvtps_epi32(_mm256_loadu_ps(lanes)), _mm256_cvtps_epi32(_mm256_loadu_ps(lanes + 8))};
    __m512i rounded;
    __builtin_memcpy(&rounded, parts, sizeof rounded);
    return rounded;
}
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32(v) emulated_cvtps_epi32(v)
static inline __m128i emulated_cvtepi32_epi8(__m512i v) {
    int lanes[16];
    char bytes[16];
    __builtin_memcpy(lanes, &v, sizeof lanes);
    for (int i = 0; i < 16; i++) bytes[i] = (char)lanes[i];
    return _mm_loadu_si128((const __m128i*)bytes);
}
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8(v) emulated_cvtepi32_epi8(v)
static inline __m512 emulated_maskz_loadu(__mmask16 mask, const void* p) {
    float lanes[16] = {};
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) __builtin_memcpy(lanes + i, (const char*)p + 4 * i, 4);
    __m512 v;
    __builtin_memcpy(&v, lanes, sizeof v);
    return v;
}
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps(mask, p) emulated_maskz_loadu(mask, p)
static inline int emulated_reduce(__m512i v, int sum) {
    int lanes[16];
    __builtin_memcpy(lanes, &v, sizeof lanes);
    for (int i = 1; i < 16; i++) lanes[0] = sum ? lanes[0] + lanes[i] : lanes[i] > lanes[0] ? lanes[i] : lanes[0];
    return lanes[0];
}
#undef _mm512_reduce_max_epi32
#undef _mm512_reduce_add_epi32
#define _mm512_reduce_max_epi32(v) emulated_reduce(v, 0)
#define _mm512_reduce_add_epi32(v) emulated_reduce(v, 1)
static inline __m512i emulated_cvtepi8(__m128i bytes) {
    const __m256i parts[2] = {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
    __m512i v;
    __builtin_memcpy(&v, parts, sizeof v);
    return v;
}
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32(bytes) emulated_cvtepi8(bytes)
static inline __m512i emulated_shuffle_epi32(__m512i v, int order) {
    int lanes[16], shuffled[16];
    __builtin_memcpy(lanes, &v, sizeof lanes);
    for (int i = 0; i < 16; i++) shuffled[i] = lanes[i / 4 * 4 + (order >> 2 * (i % 4) & 3)];
    __builtin_memcpy(&v, shuffled, sizeof v);
    return v;
}
#undef _mm512_shuffle_epi32
#define _mm512_shuffle_epi32(v, order) emulated_shuffle_epi32(v, order)

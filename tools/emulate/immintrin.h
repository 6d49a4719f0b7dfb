// Stands in for the compiler's header when AVX-512 code is built for a processor without it: SIMDe's versions over AVX2,
// and lane by lane what SIMDe lacks.
#pragma once
#include_next <immintrin.h>
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace emulated {

template <class Lane, class Vector>
inline void split(const Vector& v, Lane (&lane)[sizeof(Vector) / sizeof(Lane)]) {
    std::memcpy(lane, &v, sizeof v);
}
template <class Vector, class Lane, std::size_t kCount>
inline Vector join(const Lane (&lane)[kCount]) {
    static_assert(sizeof(Vector) == sizeof lane);
    Vector v;
    std::memcpy(&v, lane, sizeof v);
    return v;
}
// to[i] = f(from[i]) for sixteen lanes.
template <class To, class ToLane, class FromLane, class From, class Function>
inline To map16(const From& v, Function f) {
    FromLane from[16];
    ToLane to[16];
    split(v, from);
    for (int i = 0; i < 16; i++) to[i] = f(from[i]);
    return join<To>(to);
}

inline __m512 cvtph_ps(__m256i v) {
    return map16<__m512, float, std::uint16_t>(v, [](std::uint16_t h) { return _cvtsh_ss(h); });
}
inline __m512i cvtepu16_epi32(__m256i v) {
    return map16<__m512i, int, std::uint16_t>(v, [](std::uint16_t h) { return int(h); });
}
inline __m512i cvtepi8_epi32(__m128i v) {
    return map16<__m512i, int, std::int8_t>(v, [](std::int8_t b) { return int(b); });
}
inline __m128i cvtepi32_epi8(__m512i v) {
    return map16<__m128i, std::int8_t, int>(v, [](int i) { return std::int8_t(i); });
}
inline __m512 cvtepi32_ps(__m512i v) {
    return map16<__m512, float, int>(v, [](int i) { return float(i); });
}
inline __m512i cvtps_epi32(__m512 v) {
    return map16<__m512i, int, float>(v, [](float f) { return int(std::lrintf(f)); });
}
inline __m512 maskz_loadu_ps(__mmask16 mask, const float* p) {
    float lane[16] = {};
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) lane[i] = p[i];
    return join<__m512>(lane);
}
inline int reduce_add_epi32(__m512i v) {
    int lane[16], sum = 0;
    split(v, lane);
    for (int i : lane) sum += i;
    return sum;
}
inline int reduce_max_epi32(__m512i v) {
    int lane[16], most = INT32_MIN;
    split(v, lane);
    for (int i : lane) most = i > most ? i : most;
    return most;
}
inline __m512i shuffle_epi32(__m512i v, int order) {
    int from[16], to[16];
    split(v, from);
    for (int i = 0; i < 16; i++) to[i] = from[i / 4 * 4 + (order >> (i % 4 * 2) & 3)];
    return join<__m512i>(to);
}

}  // namespace emulated

#define _mm512_cvtph_ps emulated::cvtph_ps
#define _mm512_cvtepu16_epi32 emulated::cvtepu16_epi32
#define _mm512_cvtepi8_epi32 emulated::cvtepi8_epi32
#define _mm512_cvtepi32_epi8 emulated::cvtepi32_epi8
#define _mm512_cvtepi32_ps emulated::cvtepi32_ps
#define _mm512_cvtps_epi32 emulated::cvtps_epi32
#define _mm512_maskz_loadu_ps emulated::maskz_loadu_ps
#define _mm512_reduce_add_epi32 emulated::reduce_add_epi32
#define _mm512_reduce_max_epi32 emulated::reduce_max_epi32
#define _mm512_shuffle_epi32 emulated::shuffle_epi32

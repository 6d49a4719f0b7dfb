// q4_tiled (SPEC 3.2): per group of 32 a tile [f16 scale][16 bytes], byte k holding weight 2k low and 2k + 1 high,
// w = (nibble - 8) * scale. plain: scale = max(f16(absmax / 7), 2^-14), nibble = clamp(rint(w / scale), -8, 7) + 8.
// best: the scale of q4_search.h, nibbles by multiplication with 1 / scale.
#pragma once
#include "layouts/floats.h"
#include "layouts/q4_search.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace cortiq::CORTIQ_CODEC {

static constexpr std::size_t kTileBytes = 18;
static constexpr std::size_t kGroupsAtOnce = 128;  // scales kept on the stack

// SPEC's scale of each group, rounded to f16.
static void plain_scales(const float* x, std::size_t groups, float* scales) {
    for (std::size_t g = 0; g < groups; g++) scales[g] = float_of(absmax_bits(x + kGroup32 * g, kGroup32));
    for (std::size_t g = 0; g < groups; g++) {
        const float exact = scales[g] / 7.0f;
        const std::uint32_t b = bits_of(exact);
        const float rounded = float_of((b + 0xfff + (b >> 13 & 1)) & ~0x1fffu);
        scales[g] = rounded > kF16Tiny ? rounded : kF16Tiny;
    }
}

#if defined(__AVX2__)

static inline __m256i quantized8(__m256 ratio) {
    const __m256 low = _mm256_set1_ps(-8.0f), high = _mm256_set1_ps(7.0f);
    return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(ratio, low), high));
}

// Nibbles of one group from four vectors of w / scale.
static inline void store_nibbles(const __m256* ratio, std::uint8_t* out) {
    const __m256i q01 = _mm256_packs_epi32(quantized8(ratio[0]), quantized8(ratio[1]));
    const __m256i q23 = _mm256_packs_epi32(quantized8(ratio[2]), quantized8(ratio[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i signed32 = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(q01, q23), order);
    const __m256i nibbles = _mm256_add_epi8(signed32, _mm256_set1_epi8(8));
    const __m256i pairs = _mm256_maddubs_epi16(nibbles, _mm256_set1_epi16(0x1001));  // low + 16 * high
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(bytes));
}

template <bool divide>
static inline void store_tile(const float* x, float scale, std::uint8_t* tile) {
    store_u16(tile, f16_exact(scale));
    const __m256 by = _mm256_set1_ps(divide ? scale : 1.0f / scale);
    __m256 ratio[4];
    for (int j = 0; j < 4; j++) {
        const __m256 w = _mm256_loadu_ps(x + 8 * j);
        ratio[j] = divide ? _mm256_div_ps(w, by) : _mm256_mul_ps(w, by);
    }
    store_nibbles(ratio, tile + 2);
}

#else

// The rounded ratio sits in the low bits of the float, where it is clamped to -8 .. 7.
static inline std::uint8_t nibble_of(float ratio) {
    const std::int32_t zero = 0x4b400000, rounded = std::int32_t(bits_of(ratio + 0x1.8p23f)) - zero;
    const std::int32_t above = rounded > -8 ? rounded : -8;
    return std::uint8_t((above < 7 ? above : 7) + 8);
}

template <bool divide>
static inline void store_tile(const float* x, float scale, std::uint8_t* tile) {
    store_u16(tile, f16_exact(scale));
    const float by = divide ? scale : 1.0f / scale;
    std::uint8_t nibbles[kGroup32];
    for (std::size_t i = 0; i < kGroup32; i++) nibbles[i] = nibble_of(divide ? x[i] / by : x[i] * by);
    for (std::size_t k = 0; k < kGroup32 / 2; k++)
        tile[2 + k] = std::uint8_t(nibbles[2 * k] | nibbles[2 * k + 1] << 4);
}

#endif

static void q4_encode_plain(const float* x, std::size_t groups, std::uint8_t* tiles) {
    float scales[kGroupsAtOnce];
    for (std::size_t g0 = 0; g0 < groups; g0 += kGroupsAtOnce) {
        const std::size_t count = groups - g0 < kGroupsAtOnce ? groups - g0 : kGroupsAtOnce;
        plain_scales(x + kGroup32 * g0, count, scales);
        for (std::size_t g = 0; g < count; g++)
            store_tile<true>(x + kGroup32 * (g0 + g), scales[g], tiles + kTileBytes * (g0 + g));
    }
}

// Best scales of up to CORTIQ_LANES groups.
static void search_block(const float* x, std::size_t count, float* scales) {
    alignas(64) float transposed[kGroup32][CORTIQ_LANES] = {};
    for (std::size_t g = 0; g < count; g++)
        for (std::size_t i = 0; i < kGroup32; i++) transposed[i][g] = x[kGroup32 * g + i];
    alignas(64) float lane[CORTIQ_LANES];
    for (std::size_t g = 0; g < CORTIQ_LANES; g++) lane[g] = g < count ? scales[g] : kF16Tiny;
    Columns columns;
    for (std::size_t i = 0; i < kGroup32; i++) columns.w[i] = load(transposed[i]);
    store(lane, best_scales(columns, load(lane)));
    for (std::size_t g = 0; g < count; g++) scales[g] = lane[g];
}

static void q4_encode_best(const float* x, std::size_t groups, std::uint8_t* tiles) {
    float scales[CORTIQ_LANES];
    for (std::size_t g0 = 0; g0 < groups; g0 += CORTIQ_LANES) {
        const std::size_t count = groups - g0 < CORTIQ_LANES ? groups - g0 : CORTIQ_LANES;
        plain_scales(x + kGroup32 * g0, count, scales);
        search_block(x + kGroup32 * g0, count, scales);
        for (std::size_t g = 0; g < count; g++)
            store_tile<false>(x + kGroup32 * (g0 + g), scales[g], tiles + kTileBytes * (g0 + g));
    }
}

static void q4_decode(const std::uint8_t* tiles, std::size_t groups, float* out) {
    for (std::size_t g = 0; g < groups; g++, tiles += kTileBytes, out += kGroup32) {
        const float scale = f32_from_f16(load_u16(tiles));
        for (std::size_t k = 0; k < kGroup32 / 2; k++) {
            out[2 * k] = float(int(tiles[2 + k] & 15) - 8) * scale;
            out[2 * k + 1] = float(int(tiles[2 + k] >> 4) - 8) * scale;
        }
    }
}

}  // namespace cortiq::CORTIQ_CODEC

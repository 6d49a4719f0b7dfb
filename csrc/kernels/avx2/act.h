// Quantized activations for AVX2: a row is cut into blocks of 8 groups (256 columns, the last one zero padded). First
// come the blocks as the matrix-vector product of 4-bit weights takes them, then the row again in one run for each of the
// other products: a panel goes through the rows of a tile group by group, and runs are what the processor fetches ahead.
#pragma once
#include "kernels/avx2/vec.h"

namespace cortiq::CORTIQ_KERNELS {

struct ActBlock {
    // Four runs of 64 bytes; run j serves groups j and j + 4: 16 even columns of each, then 16 odd columns of each.
    i8 split[kBlock * kGroup];
    float scale[kBlock];
    // -8 * sum(q), where a sum of products starts: as two int16, columns with k % 8 < 4 and the others, as the products of
    // `split` fall. What is summed from there on stays within int16 (16 * 8 * 127).
    std::int32_t start[kBlock];
};

inline size_t act_blocks(size_t k) { return div_up(k, kBlock * kGroup); }
inline size_t act_columns(size_t k) { return round_up(k, kBlock * kGroup); }
// Where the runs start: int16 in natural order for 8-bit weights; q + 128 for panels of 4-bit weights, 16 even columns of
// each group, then 16 odd ones; the scale of each group.
inline size_t wide_offset(size_t k) { return act_blocks(k) * sizeof(ActBlock); }
inline size_t raised_offset(size_t k) { return wide_offset(k) + act_columns(k) * sizeof(std::int16_t); }
inline size_t scales_offset(size_t k) { return raised_offset(k) + act_columns(k); }
inline size_t act_nbytes(size_t k) { return round_up(scales_offset(k) + act_blocks(k) * kBlock * sizeof(float), 64); }
// Where columns of group g start in a block's `split`: the even ones, and 32 bytes on the odd ones.
inline size_t split_offset(size_t g) { return g % 4 * 64 + g % kBlock / 4 * 16; }

inline const std::int16_t* act_wide(const u8* act, size_t k) {
    return reinterpret_cast<const std::int16_t*>(act + wide_offset(k));
}
inline const float* act_scales(const u8* act, size_t k) { return reinterpret_cast<const float*>(act + scales_offset(k)); }

struct QuantGroup {
    I low, high;  // int16 in natural order
    float scale;
};

inline QuantGroup quantize_group(const float* x) {
    const __m256 v[4] = {load_f(x), load_f(x + 8), load_f(x + 16), load_f(x + 24)};
    const I magnitude = _mm256_set1_epi32(0x7fffffff);
    auto bits = [&](int i) { return _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude); };
    const I most = _mm256_max_epi32(_mm256_max_epi32(bits(0), bits(1)), _mm256_max_epi32(bits(2), bits(3)));
    __m128i top = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    top = _mm_max_epi32(top, _mm_shuffle_epi32(top, 0x4e));
    top = _mm_max_epi32(top, _mm_shuffle_epi32(top, 0xb1));
    const float largest = _mm_cvtss_f32(_mm_castsi128_ps(top));
    if (_mm_cvtsi128_si32(top) >= 0x7f800000) return {_mm256_setzero_si256(), _mm256_setzero_si256(), __builtin_nanf("")};
    if (largest < 0x1p-100f) return {_mm256_setzero_si256(), _mm256_setzero_si256(), 0.0f};
    const __m256 inverse = _mm256_set1_ps(127.0f / largest);
    auto round = [&](int i) { return _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)); };
    auto pack = [](I a, I b) { return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8); };
    return {pack(round(0), round(1)), pack(round(2), round(3)), largest / 127.0f};
}

inline void store_group(const QuantGroup& q, size_t g, size_t k, u8* act) {
    u8* wide = act + wide_offset(k) + g * kGroup * sizeof(std::int16_t);
    store_i(wide, q.low);
    store_i(wide + sizeof(I), q.high);
    std::memcpy(act + scales_offset(k) + g * sizeof(float), &q.scale, sizeof(float));
    ActBlock& b = reinterpret_cast<ActBlock*>(act)[g / kBlock];
    const I bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(q.low, q.high), 0xd8);
    const I order = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15,  //
                                     0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const I split = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(bytes, order), 0xd8);
    i8* at = b.split + split_offset(g);
    _mm_store_si128(reinterpret_cast<__m128i*>(at), _mm256_castsi256_si128(split));
    _mm_store_si128(reinterpret_cast<__m128i*>(at + 32), _mm256_extracti128_si256(split, 1));
    store_i(act + raised_offset(k) + g * kGroup, _mm256_xor_si256(split, _mm256_set1_epi8(-128)));
    const I pairs = _mm256_madd_epi16(_mm256_add_epi16(q.low, q.high), _mm256_set1_epi16(-8));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    b.start[g % kBlock] = _mm_extract_epi16(sum, 0) | _mm_extract_epi16(sum, 4) << 16;
    b.scale[g % kBlock] = q.scale;
}

inline void quantize(const float* x, size_t k, size_t g0, size_t g1, u8* act) {
    auto store = [&](size_t g, const QuantGroup& q) { store_group(q, g, k, act); };
    const size_t full = k / kGroup, groups = div_up(k, kGroup);
    for (size_t g = g0; g < smaller(g1, full); g++) store(g, quantize_group(x + g * kGroup));
    if (g1 < groups) return;
    if (g0 <= full && full < groups) {
        float rest[kGroup] = {};
        std::memcpy(rest, x + full * kGroup, (k - full * kGroup) * sizeof(float));
        store(full, quantize_group(rest));
    }
    const QuantGroup none = {_mm256_setzero_si256(), _mm256_setzero_si256(), 0.0f};
    for (size_t g = groups; g < act_blocks(k) * kBlock; g++) store(g, none);
}

inline void dequantize(const u8* act, size_t k, float* out) {
    const std::int16_t* wide = act_wide(act, k);
    const float* scales = act_scales(act, k);
    for (size_t i = 0; i < k; i++) out[i] = float(wide[i]) * scales[i / kGroup];
}

}  // namespace cortiq::CORTIQ_KERNELS

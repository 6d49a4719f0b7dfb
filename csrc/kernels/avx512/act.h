// Quantized activations for AVX-512 with VNNI. A row is cut into blocks of 8 groups (256 columns, the last one zero
// padded). First come the blocks for one row at a time, then the groups again, lane by lane, for tiles of rows.
#pragma once
#include "kernels/avx512/vec.h"
#include "kernels/panel.h"

namespace cortiq::CORTIQ_KERNELS {

struct ActBlock {
    // For nibbles, 64 bytes each: even columns of groups 0 2 4 6, their odd columns, then the same of groups 1 3 5 7.
    i8 split[kBlock * kGroup];
    i8 natural[kBlock * kGroup];  // for bytes
    float scale[kBlock];
    std::int32_t sum[kBlock];       // sum(q) times minus the zero point: -8 of a nibble,
    std::int32_t byte_sum[kBlock];  // and -128 of a byte whose top bit was flipped
    std::int32_t unused[kBlock];
};

// One group as panels take it, at panel_spot(g).
struct PanelGroup {
    i8 quants[kGroup];  // even columns, then odd ones
    float scale;
    std::int32_t sum, byte_sum, unused;  // as above
};

inline size_t act_blocks(size_t k) { return div_up(k, kBlock * kGroup); }
// A cache line more than needed: blocks are powers of two, and the rows of a tile must not fall into one cache set.
inline size_t act_nbytes(size_t k) { return act_blocks(k) * (sizeof(ActBlock) + kBlock * sizeof(PanelGroup)) + 64; }
// Where columns of group g start in `split`: the even ones, and 64 bytes on the odd ones.
inline size_t split_offset(size_t g) { return g % 2 * 128 + g % kBlock / 2 * 16; }

// Columns [0, count) of one group; the others count as 0.
inline void quantize_group(const float* x, size_t count, size_t g, ActBlock& b, PanelGroup& p) {
    auto first = [&](size_t skip) {
        const size_t n = count > skip ? count - skip : 0;
        return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1);
    };
    const __m512 low = _mm512_maskz_loadu_ps(first(0), x), high = _mm512_maskz_loadu_ps(first(16), x + 16);
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const int top = _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                                                             _mm512_and_si512(_mm512_castps_si512(high), magnitude)));
    const float largest = load_as<float>(&top);
    float scale = 0, inverse = 0;
    if (top >= 0x7f800000) scale = __builtin_nanf("");
    else if (largest >= 0x1p-100f) scale = largest / 127.0f, inverse = 127.0f / largest;
    __m256i bytes = _mm256_setzero_si256();
    if (inverse != 0) {
        const __m512 factor = _mm512_set1_ps(inverse);
        auto round = [&](__m512 v) { return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v, factor))); };
        bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(round(low)), round(high), 1);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(b.natural + g % kBlock * kGroup), bytes);
    const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15,  //
                                           0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m256i split = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(bytes, order), 0xd8);
    i8* at = b.split + split_offset(g);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_castsi256_si128(split));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at + 64), _mm256_extracti128_si256(split, 1));
    const int sum = _mm512_reduce_add_epi32(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes))) +
                    _mm512_reduce_add_epi32(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1)));
    b.scale[g % kBlock] = p.scale = scale;
    b.sum[g % kBlock] = p.sum = -8 * sum;
    b.byte_sum[g % kBlock] = p.byte_sum = -128 * sum;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p.quants), split);
}

inline void quantize(const float* x, size_t k, size_t g0, size_t g1, u8* act) {
    ActBlock* block = reinterpret_cast<ActBlock*>(act);
    const size_t blocks = act_blocks(k);
    PanelGroup* panel = reinterpret_cast<PanelGroup*>(act + blocks * sizeof(ActBlock));
    const size_t groups = div_up(k, kGroup), end = g1 < groups ? g1 : blocks * kBlock;
    for (size_t g = g0; g < end; g++) {
        const size_t first = g * kGroup, count = g < groups ? smaller(kGroup, k - first) : 0;
        quantize_group(x + smaller(first, k), count, g, block[g / kBlock], panel[panel_spot(g, groups)]);
    }
}

inline void dequantize(const u8* act, size_t k, float* out) {
    const ActBlock* block = reinterpret_cast<const ActBlock*>(act);
    for (size_t i = 0; i < k; i++) out[i] = float(block[i / 256].natural[i % 256]) * block[i / 256].scale[i % 256 / kGroup];
}

}  // namespace cortiq::CORTIQ_KERNELS

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

// Where group g stands among `groups`: lane by lane, as a tile goes through them.
inline size_t panel_spot(size_t g, size_t groups) { return g % kBlock * div_up(groups, kBlock) + g / kBlock; }

inline size_t act_blocks(size_t k) { return div_up(k, kBlock * kGroup); }
// A cache line more than needed: blocks are powers of two, and the rows of a tile must not fall into one cache set.
inline size_t act_nbytes(size_t k) { return act_blocks(k) * (sizeof(ActBlock) + kBlock * sizeof(PanelGroup)) + 64; }
// Where columns of group g start in `split`: the even ones, and 64 bytes on the odd ones.
inline size_t split_offset(size_t g) { return g % 2 * 128 + g % kBlock / 2 * 16; }

// Eight vectors to one: `op` over the lanes of each.
template <class Op>
inline __m256i fold_lanes(const __m256i* v, Op op) {
    __m256i half[4], quarter[2];
    for (int i = 0; i < 4; i++)
        half[i] = op(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        quarter[i] = op(_mm256_unpacklo_epi64(half[2 * i], half[2 * i + 1]),
                        _mm256_unpackhi_epi64(half[2 * i], half[2 * i + 1]));
    return op(_mm256_permute2x128_si256(quarter[0], quarter[1], 0x20),
              _mm256_permute2x128_si256(quarter[0], quarter[1], 0x31));
}

// What a group is divided by, and multiplied with to become integers. In a group with infinities or NaN every product
// with the second one is finite garbage or NaN, both of which become the byte 0.
struct Scales {
    explicit Scales(__m256i top) {
        const __m256 largest = _mm256_castsi256_ps(top), limit = _mm256_set1_ps(127.0f);
        const __mmask8 usable = _mm256_cmp_ps_mask(largest, _mm256_set1_ps(0x1p-100f), _CMP_GE_OQ) &
                                _mm256_cmpgt_epi32_mask(_mm256_set1_epi32(0x7f800000), top);
        const __mmask8 broken = _mm256_cmpgt_epi32_mask(top, _mm256_set1_epi32(0x7f7fffff));
        _mm256_store_ps(inverse, _mm256_maskz_div_ps(usable, limit, largest));
        const __m256 nan = _mm256_set1_ps(__builtin_nanf(""));
        _mm256_store_ps(scale, _mm256_mask_mov_ps(_mm256_maskz_div_ps(usable, largest, limit), broken, nan));
    }
    alignas(32) float inverse[kBlock], scale[kBlock];
};

// Groups [first, last) of a row, all of block b. Groups beyond k are zeros.
inline void quantize_groups(const float* x, size_t k, size_t first, size_t last, ActBlock& b, PanelGroup* panel) {
    auto columns = [&](size_t g, size_t half) {
        const size_t at = g * kGroup + 16 * half, left = at < k ? k - at : 0;
        return _mm512_maskz_loadu_ps(left >= 16 ? __mmask16(0xffff) : __mmask16((1u << left) - 1), x + smaller(at, k));
    };
    const I magnitude = _mm512_set1_epi32(0x7fffffff);
    __m256i top[kBlock] = {}, sum[kBlock] = {};
    for (size_t g = first; g < last; g++) {
        const I low = _mm512_and_si512(_mm512_castps_si512(columns(g, 0)), magnitude);
        const I most = _mm512_max_epi32(low, _mm512_and_si512(_mm512_castps_si512(columns(g, 1)), magnitude));
        top[g % kBlock] = _mm256_max_epi32(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
    }
    const Scales scales(fold_lanes(top, [](__m256i p, __m256i q) { return _mm256_max_epi32(p, q); }));
    const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15,  //
                                           0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const size_t blocks = act_blocks(k);
    for (size_t g = first; g < last; g++) {
        const __m512 factor = _mm512_set1_ps(scales.inverse[g % kBlock]);
        auto round = [&](size_t half) {
            return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(columns(g, half), factor)));
        };
        const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(round(0)), round(1), 1);
        const __m256i split = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(bytes, order), 0xd8);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(b.natural + g % kBlock * kGroup), bytes);
        i8* at = b.split + split_offset(g);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_castsi256_si128(split));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(at + 64), _mm256_extracti128_si256(split, 1));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(panel[g % kBlock * blocks].quants), split);
        sum[g % kBlock] = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
    }
    alignas(32) std::int32_t total[kBlock];
    auto add_up = [](__m256i p, __m256i q) { return _mm256_add_epi32(p, q); };
    _mm256_store_si256(reinterpret_cast<__m256i*>(total), fold_lanes(sum, add_up));
    for (size_t g = first; g < last; g++) {
        const size_t i = g % kBlock;
        PanelGroup& p = panel[i * blocks];
        b.scale[i] = p.scale = scales.scale[i];
        b.sum[i] = p.sum = -8 * total[i];
        b.byte_sum[i] = p.byte_sum = -128 * total[i];
    }
}

inline void quantize(const float* x, size_t k, size_t g0, size_t g1, u8* act) {
    ActBlock* block = reinterpret_cast<ActBlock*>(act);
    const size_t blocks = act_blocks(k);
    PanelGroup* panel = reinterpret_cast<PanelGroup*>(act + blocks * sizeof(ActBlock));
    const size_t end = g1 < div_up(k, kGroup) ? g1 : blocks * kBlock;
    for (size_t g = g0; g < end; g = round_up(g + 1, kBlock))
        quantize_groups(x, k, g, smaller(end, round_up(g + 1, kBlock)), block[g / kBlock], panel + g / kBlock);
}

inline void dequantize(const u8* act, size_t k, float* out) {
    const ActBlock* block = reinterpret_cast<const ActBlock*>(act);
    for (size_t i = 0; i < k; i++) out[i] = float(block[i / 256].natural[i % 256]) * block[i / 256].scale[i % 256 / kGroup];
}

}  // namespace cortiq::CORTIQ_KERNELS

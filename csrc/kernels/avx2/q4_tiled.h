// q4_tiled on AVX2: eight groups become one vector of eight exact dot products.
#pragma once
#include "kernels/avx2/act.h"

namespace cortiq::CORTIQ_KERNELS {

// The f16 scales of eight tiles. Tile i starts at 18 i = 16 i + 2 i: its scale is word i of the i-th 16-byte chunk.
// Even chunks lie in the low half of four loads, odd ones in the high half, so three blends collect all of them.
inline __m256 tile_scales(const u8* p) {
    const I v = _mm256_blend_epi32(_mm256_blend_epi32(load_i(p), load_i(p + 32), 0x22),
                                   _mm256_blend_epi32(load_i(p + 64), load_i(p + 96), 0x88), 0xcc);
    return _mm256_cvtph_ps(_mm_blend_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1), 0xaa));
}

// Two vectors of int16 sums, two groups each, into one: [a, b, a, b] pairs in either half.
inline I fold32(I a, I b) { return _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)); }
inline I fold64(I a, I b) { return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)); }

// Eight tiles against block `b` of kCols activation rows. Sums of products stay below 8 * 15 * 127 * 2 = 30480 and,
// zero point included, below 2^15 in every 16-bit lane.
template <int kCols>
inline void q4_block(const u8* p, const ActBlock* const* x, size_t b, __m256* lanes) {
    const I low4 = _mm256_set1_epi8(15);
    I sum[kCols][2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        I dot[kCols][2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const int j = 2 * half + i;
            const I tiles = two(p + 18 * j + 2, p + 18 * (j + 4) + 2);
            const I even = _mm256_and_si256(tiles, low4);
            const I odd = _mm256_and_si256(_mm256_srli_epi16(tiles, 4), low4);
#pragma GCC unroll 4
            for (int c = 0; c < kCols; c++) {
                const i8* at = x[c][b].split + 64 * j;
                dot[c][i] = _mm256_add_epi16(_mm256_maddubs_epi16(even, load_i(at)),
                                             _mm256_maddubs_epi16(odd, load_i(at + 32)));
            }
        }
#pragma GCC unroll 4
        for (int c = 0; c < kCols; c++) sum[c][half] = fold32(dot[c][0], dot[c][1]);
    }
    const __m256 scales = tile_scales(p);
#pragma GCC unroll 4
    for (int c = 0; c < kCols; c++) {
        const ActBlock& act = x[c][b];
        const I pairs = _mm256_add_epi16(fold64(sum[c][0], sum[c][1]), load_i(act.minus8));
        const __m256 dot = to_f(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        lanes[c] = fma(dot, mul(scales, load_f(act.scale)), lanes[c]);
    }
}

template <int kCols>
void q4_gemv(const Job& job, const u8* act) {
    const Q4Tiled t(job.w);
    const size_t full = t.groups / kBlock, rest = t.groups % kBlock, stride = act_nbytes(job.w.cols);
    const ActBlock* x[kCols];
    for (int c = 0; c < kCols; c++) x[c] = reinterpret_cast<const ActBlock*>(act + size_t(c) * stride);
    for (size_t r = job.r0; r < job.r1; r++) {
        const u8* p = t.row(r);
        __m256 lanes[kCols];
        for (int c = 0; c < kCols; c++) lanes[c] = _mm256_setzero_ps();
        for (size_t b = 0; b < full; b++, p += kBlock * Q4Tiled::kTile) q4_block<kCols>(p, x, b, lanes);
        if (rest != 0) {
            alignas(32) u8 tail[kBlock * Q4Tiled::kTile] = {};
            std::memcpy(tail, p, rest * Q4Tiled::kTile);
            q4_block<kCols>(tail, x, full, lanes);
        }
        for (int c = 0; c < kCols; c++) job.y[size_t(c) * job.y_stride + r] = sum_lanes(lanes[c]);
    }
}

}  // namespace cortiq::CORTIQ_KERNELS

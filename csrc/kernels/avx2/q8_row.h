// q8_row on AVX2: bytes widened to int16, exact products summed in int32, eight groups reduced together.
#pragma once
#include "kernels/avx2/act.h"

namespace cortiq::CORTIQ_KERNELS {

inline I dot_wide(const u8* w, const std::int16_t* x) {
    const I low = _mm256_madd_epi16(_mm256_cvtepi8_epi16(load_128(w)), load_i(x));
    return _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_cvtepi8_epi16(load_128(w + 16)), load_i(x + 16)));
}

inline I add_halves32(I a, I b) { return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)); }
inline I add_halves64(I a, I b) { return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)); }

// Two or four groups as [0 1 2 3] in either half, still to be added.
template <int kGroups>
inline I dot_groups(const u8* w, const std::int16_t* x) {
    const I pair = add_halves32(dot_wide(w, x), dot_wide(w + 32, x + 32));
    return add_halves64(pair, kGroups == 2 ? _mm256_setzero_si256()
                                           : add_halves32(dot_wide(w + 64, x + 64), dot_wide(w + 96, x + 96)));
}

// Bytes ahead that are fetched into the cache: a row of a small model is too short for the processor to see a stream.
constexpr size_t kQ8Ahead = 1024;
constexpr size_t kQ8Bytes = kBlock * kGroup;  // of a block

// Of the block's groups the first kGroups exist.
template <int kGroups>
inline __m256 q8_block(const u8* w, const std::int16_t* x, const float* scales, __m256 lanes) {
    const I a = dot_groups<kGroups == 2 ? 2 : 4>(w, x);
    const I b = kGroups == 8 ? dot_groups<4>(w + 128, x + 128) : _mm256_setzero_si256();
    const I dot = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
    return fma(to_f(dot), load_f(scales), lanes);
}

inline __m256 q8_tail(const u8* w, const std::int16_t* x, const float* scales, __m256 lanes, size_t rest) {
    if (rest <= 2 * kGroup) return q8_block<2>(w, x, scales, lanes);
    return rest <= 4 * kGroup ? q8_block<4>(w, x, scales, lanes) : q8_block<8>(w, x, scales, lanes);
}

// The product of one row of weights and kCols rows of activations, before its lanes are added: lanes[8 c].
template <int kCols>
inline void q8_dot(const Q8Row& t, size_t r, const u8* act, size_t act_stride, __m256* lanes) {
    const size_t full = t.cols / kQ8Bytes, rest = t.cols % kQ8Bytes;
    const u8* p = t.row(r);
    alignas(32) u8 copy[kQ8Bytes];
    const u8* tail = p + full * kQ8Bytes;
    if (rest != 0) tail = readable(tail, rest, kQ8Bytes, t.limit, copy);  // what follows the row meets zeros
#pragma GCC unroll 4
    for (int c = 0; c < kCols; c++) {
        const std::int16_t* x = act_wide(act + size_t(c) * act_stride, t.cols);
        const float* scales = act_scales(act + size_t(c) * act_stride, t.cols);
        __m256 sum = _mm256_setzero_ps();
        for (size_t b = 0; b < full; b++) {
            const u8* w = p + b * kQ8Bytes;
            if (c == 0)
                for (size_t line = 0; line < 4; line++) _mm_prefetch(w + kQ8Ahead + 64 * line, _MM_HINT_T0);
            sum = q8_block<8>(w, x + b * kQ8Bytes, scales + b * kBlock, sum);
        }
        if (rest != 0) sum = q8_tail(tail, x + full * kQ8Bytes, scales + full * kBlock, sum, rest);
        lanes[8 * c] = sum;
    }
}

template <int kCols>
void q8_gemv(const Job& job, const u8* act) {
    const Q8Row t(job.w);
    for (size_t r = job.r0; r < job.r1; r += 8) {
        const size_t count = smaller<size_t>(8, job.r1 - r);
        __m256 lanes[kCols][8];
        clear_rows(lanes, count);
        for (size_t i = 0; i < count; i++) q8_dot<kCols>(t, r + i, act, act_nbytes(job.w.cols), lanes[0] + i);
        alignas(16) std::uint16_t halves[8] = {};
        std::memcpy(halves, t.scales + 2 * r, count * sizeof *halves);
        const __m256 scales = _mm256_cvtph_ps(load_128(halves));
        for (int c = 0; c < kCols; c++)
            store_part(job.y + size_t(c) * job.y_stride + r, mul(sum_lanes8(lanes[c]), scales), count);
    }
}

}  // namespace cortiq::CORTIQ_KERNELS

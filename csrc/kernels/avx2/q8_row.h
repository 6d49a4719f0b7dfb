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

// Four groups as [0 1 2 3] in either half, still to be added.
inline I dot_four(const u8* w, const std::int16_t* x) {
    return add_halves64(add_halves32(dot_wide(w, x), dot_wide(w + 32, x + 32)),
                        add_halves32(dot_wide(w + 64, x + 64), dot_wide(w + 96, x + 96)));
}

// Bytes ahead that are fetched into the cache: a row of a small model is too short for the processor to see a stream.
constexpr size_t kQ8Ahead = 1024;

// kHalves == 1: the upper four groups are absent.
template <int kHalves = 2>
inline __m256 q8_block(const u8* w, const std::int16_t* x, const float* scales, __m256 lanes) {
    const I a = dot_four(w, x), b = kHalves == 2 ? dot_four(w + 128, x + 128) : _mm256_setzero_si256();
    const I dot = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
    return fma(to_f(dot), load_f(scales), lanes);
}

inline __m256 q8_tail(const u8* w, const std::int16_t* x, const float* scales, __m256 lanes, size_t rest) {
    return rest <= 128 ? q8_block<1>(w, x, scales, lanes) : q8_block<2>(w, x, scales, lanes);
}

template <int kCols>
void q8_gemv(const Job& job, const u8* act) {
    constexpr size_t kBytes = kBlock * kGroup;
    const Q8Row t(job.w);
    const size_t full = t.cols / kBytes, rest = t.cols % kBytes, stride = act_nbytes(job.w.cols);
    for (size_t r = job.r0; r < job.r1; r++) {
        const u8* p = t.row(r);
        alignas(32) u8 tail[kBytes];
        const u8* last = p + full * kBytes;  // what follows the row meets zeros, but must be readable
        if (rest != 0 && size_t(t.limit - last) < kBytes) {
            std::memset(tail, 0, sizeof tail);
            std::memcpy(tail, last, rest);
            last = tail;
        }
#pragma GCC unroll 4
        for (int c = 0; c < kCols; c++) {
            const std::int16_t* x = act_wide(act + size_t(c) * stride, job.w.cols);
            const float* scales = act_scales(act + size_t(c) * stride, job.w.cols);
            __m256 lanes = _mm256_setzero_ps();
            for (size_t b = 0; b < full; b++) {
                const u8* w = p + b * kBytes;
                if (c == 0)
                    for (size_t line = 0; line < 4; line++) _mm_prefetch(w + kQ8Ahead + 64 * line, _MM_HINT_T0);
                lanes = q8_block(w, x + b * kBytes, scales + b * kBlock, lanes);
            }
            if (rest != 0) lanes = q8_tail(last, x + full * kBytes, scales + full * kBlock, lanes, rest);
            job.y[size_t(c) * job.y_stride + r] = sum_lanes(lanes) * t.scale(r);
        }
    }
}

}  // namespace cortiq::CORTIQ_KERNELS

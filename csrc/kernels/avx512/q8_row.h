// q8_row on AVX-512: bytes with their top bit flipped are unsigned, which is what the dot instruction wants.
#pragma once
#include "kernels/avx512/act.h"

namespace cortiq::CORTIQ_KERNELS {

inline I dot_bytes(const u8* w, const i8* x) {
    const I field = _mm512_xor_si512(load_i(w), _mm512_set1_epi8(-128));
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), field, load_i(x));
}
inline I fold32(I a, I b) { return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)); }
inline I fold64(I a, I b) { return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)); }

// Vectors of a block that are not there count as zeros.
template <int kVectors = 4>
inline __m256 q8_block(const u8* w, const ActBlock& x, __m256 lanes) {
    auto dot_at = [&](int i) { return i < kVectors ? dot_bytes(w + 64 * i, x.natural + 64 * i) : _mm512_setzero_si512(); };
    // Either half of a register is one group; after folding, lanes 0 and 1 hold groups 0 2 4 6, 2 and 3 the odd ones.
    I dot = fold64(fold32(dot_at(0), dot_at(1)), fold32(dot_at(2), dot_at(3)));
    dot = _mm512_add_epi32(dot, _mm512_shuffle_i32x4(dot, dot, 0xb1));
    dot = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 8, 1, 9, 2, 10, 3, 11), dot);
    const __m256i total = _mm256_add_epi32(_mm512_castsi512_si256(dot), load_256(x.byte_sum));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), _mm256_loadu_ps(x.scale), lanes);
}

inline __m256 q8_tail(const u8* w, const ActBlock& x, __m256 lanes, size_t rest) {
    switch (div_up(rest, 64)) {
        case 1: return q8_block<1>(w, x, lanes);
        case 2: return q8_block<2>(w, x, lanes);
        case 3: return q8_block<3>(w, x, lanes);
        default: return q8_block<4>(w, x, lanes);
    }
}

template <int kCols>
void q8_gemv(const Job& job, const u8* act) {
    constexpr size_t kBytes = kBlock * kGroup;
    const Q8Row t(job.w);
    const size_t full = t.cols / kBytes, rest = t.cols % kBytes, stride = act_nbytes(job.w.cols);
    const bool ahead = fetching_ahead_helps();
    for (size_t r = job.r0; r < job.r1; r++) {
        const u8* p = t.row(r);
        alignas(64) u8 copy[kBytes];
        const u8* tail = p + full * kBytes;
        if (rest != 0) tail = readable(tail, rest, kBytes, t.limit, copy);  // what follows the row meets zeros
#pragma GCC unroll 4
        for (int c = 0; c < kCols; c++) {
            const ActBlock* x = reinterpret_cast<const ActBlock*>(act + size_t(c) * stride);
            __m256 lanes = _mm256_setzero_ps();
            for (size_t b = 0; b < full; b++) {
                const u8* w = p + b * kBytes;
                if (c == 0 && ahead) fetch_ahead<kBytes>(w);
                lanes = q8_block(w, x[b], lanes);
            }
            if (rest != 0) lanes = q8_tail(tail, x[full], lanes, rest);
            job.y[size_t(c) * job.y_stride + r] = sum_lanes(lanes) * t.scale(r);
        }
    }
}

}  // namespace cortiq::CORTIQ_KERNELS

// q4_tiled on AVX-512: two byte permutes take the nibbles of eight tiles out of the stream, four per register.
#pragma once
#include "kernels/avx512/act.h"

namespace cortiq::CORTIQ_KERNELS {

// Byte indices into 128 bytes that start at `base`: the 16 nibble bytes of four tiles, two tiles (36 bytes) apart.
inline I nibble_index(int first, int second, int third, int fourth) {
    alignas(64) i8 index[64];
    const int start[4] = {first, second, third, fourth};
    for (int lane = 0; lane < 4; lane++)
        for (int i = 0; i < 16; i++) index[16 * lane + i] = i8(start[lane] + i);
    return _mm512_load_si512(index);
}

struct Nibbles {
    Nibbles() {
        alignas(32) std::int16_t word[16] = {};
        for (int i = 0; i < 8; i++) word[i] = std::int16_t(9 * i);
        scale = _mm512_castsi256_si512(_mm256_load_si256(reinterpret_cast<const __m256i*>(word)));
    }
    // Tiles 0 and 2 lie in bytes 0..63, 4 and 6 in 64..127; 1 and 3 in 18..81, 5 and 7 in 80..143.
    I even = nibble_index(2, 38, 64 + 10, 64 + 46), odd = nibble_index(2, 38, 64 + 12, 64 + 48), scale;
};

// Eight tiles, and what is left of a row: `load` gives 64 bytes from an offset on.
template <int kCols, class Load>
inline void q4_block(Load load, const Nibbles& n, const ActBlock* const* x, size_t b, __m256* lanes) {
    const I low4 = _mm512_set1_epi8(15);
    const I head = load(0), next = load(64);
    const I even = _mm512_permutex2var_epi8(head, n.even, next);
    const I odd = _mm512_permutex2var_epi8(load(18), n.odd, load(80));
    const __m256 scales =
        _mm256_cvtph_ps(_mm512_castsi512_si128(_mm512_permutex2var_epi16(head, n.scale, next)));
    const I field[4] = {_mm512_and_si512(even, low4), _mm512_and_si512(_mm512_srli_epi16(even, 4), low4),
                        _mm512_and_si512(odd, low4), _mm512_and_si512(_mm512_srli_epi16(odd, 4), low4)};
#pragma GCC unroll 4
    for (int c = 0; c < kCols; c++) {
        const ActBlock& act = x[c][b];
        I first = _mm512_dpbusd_epi32(_mm512_setzero_si512(), field[0], load_i(act.split));
        I second = _mm512_dpbusd_epi32(_mm512_setzero_si512(), field[2], load_i(act.split + 128));
        first = _mm512_dpbusd_epi32(first, field[1], load_i(act.split + 64));
        second = _mm512_dpbusd_epi32(second, field[3], load_i(act.split + 192));
        // Lane i of `first` holds four parts of group 2 i, of `second` those of 2 i + 1.
        I pairs = _mm512_add_epi32(_mm512_unpacklo_epi32(first, second), _mm512_unpackhi_epi32(first, second));
        pairs = _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_ENUM(0x4e)));
        const I ordered = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6), pairs);
        const __m256i dot = _mm256_add_epi32(_mm512_castsi512_si256(ordered), load_256(act.sum));
        lanes[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(scales, _mm256_loadu_ps(act.scale)), lanes[c]);
    }
}

template <int kCols>
void q4_gemv(const Job& job, const u8* act) {
    constexpr size_t kBytes = kBlock * Q4Tiled::kTile;
    const Nibbles nibbles;
    const Q4Tiled t(job.w);
    const size_t full = t.groups / kBlock, rest = t.groups % kBlock, stride = act_nbytes(job.w.cols);
    const ActBlock* x[kCols];
    for (int c = 0; c < kCols; c++) x[c] = reinterpret_cast<const ActBlock*>(act + size_t(c) * stride);
    // The bytes of the last block, from each offset that is loaded; nothing beyond them is touched.
    auto there = [&](size_t offset) {
        const size_t end = rest * Q4Tiled::kTile, left = end > offset ? end - offset : 0;
        return left >= 64 ? ~__mmask64(0) : (__mmask64(1) << left) - 1;
    };
    const bool ahead = fetching_ahead_helps();
    const __mmask64 at0 = there(0), at18 = there(18), at64 = there(64), at80 = there(80);
    for (size_t r = job.r0; r < job.r1; r++) {
        const u8* p = t.row(r);
        __m256 lanes[kCols];
        for (int c = 0; c < kCols; c++) lanes[c] = _mm256_setzero_ps();
        for (size_t b = 0; b < full; b++, p += kBytes) {
            if (ahead) fetch_ahead<128>(p);
            q4_block<kCols>([&](size_t offset) { return load_i(p + offset); }, nibbles, x, b, lanes);
        }
        auto masked = [&](size_t offset) {
            const __mmask64 mask = offset == 0 ? at0 : offset == 18 ? at18 : offset == 64 ? at64 : at80;
            return _mm512_maskz_loadu_epi8(mask, p + offset);
        };
        if (rest != 0) q4_block<kCols>(masked, nibbles, x, full, lanes);
        for (int c = 0; c < kCols; c++) job.y[size_t(c) * job.y_stride + r] = sum_lanes(lanes[c]);
    }
}

}  // namespace cortiq::CORTIQ_KERNELS

// q4_tiled on AVX2: eight groups become one vector of eight exact dot products.
#pragma once
#include "kernels/avx2/act.h"

namespace cortiq::CORTIQ_KERNELS {

// Bytes ahead that are fetched into the cache: a row of a small model is too short for the processor to see a stream.
constexpr size_t kAhead = 2048;

// The f16 scales of four tiles at `low` and four at `high`, 18 bytes apart. Tile i of eight in a row starts at
// 18 i = 16 i + 2 i: its scale is word i of the i-th 16-byte chunk. Even chunks lie in the low half of four loads, odd
// ones in the high half, so three blends collect all of them.
inline __m256 tile_scales(const u8* low, const u8* high) {
    const I v = _mm256_blend_epi32(_mm256_blend_epi32(load_i(low), load_i(low + 32), 0x22),
                                   _mm256_blend_epi32(load_i(high - 8), load_i(high + 24), 0x88), 0xcc);
    return _mm256_cvtph_ps(_mm_blend_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1), 0xaa));
}

// Two vectors of int16 sums, two groups each, into one: [a, b, a, b] pairs in either half.
inline I fold32(I a, I b) { return _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)); }
inline I fold64(I a, I b) { return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)); }

// Exact dot products of eight tiles, four at `low` and four at `high`, and eight groups of activations. Sums of products
// stay below 8 * 15 * 127 * 2 = 30480 and, zero point included, below 2^15 in every 16-bit lane.
template <int kCols>
inline void q4_dots(const u8* low, const u8* high, const ActBlock* const* x, __m256* dots) {
    const I low4 = _mm256_set1_epi8(15);
    I sum[kCols][2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        I dot[kCols][2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const int j = 2 * half + i;
            const I tiles = two(low + 18 * j + 2, high + 18 * j + 2);
            const I even = _mm256_and_si256(tiles, low4);
            const I odd = _mm256_and_si256(_mm256_srli_epi16(tiles, 4), low4);
#pragma GCC unroll 4
            for (int c = 0; c < kCols; c++) {
                const i8* at = x[c]->split + 64 * j;
                dot[c][i] = _mm256_add_epi16(_mm256_maddubs_epi16(even, load_i(at)),
                                             _mm256_maddubs_epi16(odd, load_i(at + 32)));
            }
        }
#pragma GCC unroll 4
        for (int c = 0; c < kCols; c++) sum[c][half] = fold32(dot[c][0], dot[c][1]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < kCols; c++) {
        const I pairs = _mm256_add_epi16(fold64(sum[c][0], sum[c][1]), load_i(x[c]->start));
        dots[c] = to_f(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
}

// The last groups of two rows, at most four each, share one step: their activations stand in both halves of `x`.
template <int kCols>
inline void q4_tails(const u8* low, const u8* high, const ActBlock* const* x, __m256 used, __m256* first, __m256* second) {
    __m256 dots[kCols];
    q4_dots<kCols>(low, high, x, dots);
    const __m256 scales = tile_scales(low, high);
#pragma GCC unroll 4
    for (int c = 0; c < kCols; c++) {
        const __m256 factor = _mm256_and_ps(mul(scales, load_f(x[c]->scale)), used);
        first[c] = fma(dots[c], _mm256_blend_ps(factor, zero_f(), 0xf0), first[c]);
        second[c] = fma(_mm256_permute2f128_ps(dots[c], dots[c], 1), _mm256_permute2f128_ps(factor, factor, 0x81),
                        second[c]);
    }
}

// One call of the matrix-vector product: where the tiles and the activations of each step are.
template <int kCols>
struct Q4Gemv {
    Q4Gemv(const Job& job, const u8* act) : t(job.w), full(t.groups / kBlock), rest(t.groups % kBlock) {
        const size_t stride = act_nbytes(job.w.cols);
        for (int c = 0; c < kCols; c++) {
            x[c] = reinterpret_cast<const ActBlock*>(act + size_t(c) * stride);
            if (rest != 0) tail[c] = x[c][full];
            if (shared()) mirror(tail[c]);
            at_tail[c] = &tail[c];
        }
        const I lane = _mm256_setr_epi32(0, 1, 2, 3, shared() ? 0 : 4, shared() ? 1 : 5, shared() ? 2 : 6, shared() ? 3 : 7);
        used = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(int(rest)), lane));
    }
    bool shared() const { return rest != 0 && rest <= kBlock / 2; }

    static void mirror(ActBlock& b) {
        for (size_t j = 0; j < kBlock; j++) std::memcpy(b.split + 32 * j + 16, b.split + 32 * j, 16);
        std::memcpy(b.scale + 4, b.scale, 16);
        std::memcpy(b.start + 4, b.start, 16);
    }

    // The whole blocks of a row, then its tail unless two rows share that.
    void row(size_t r, __m256* lanes) const {
        const u8* p = t.row(r);
        __m256 dots[kCols];
        for (int c = 0; c < kCols; c++) lanes[c] = zero_f();
        for (size_t b = 0; b < full; b++, p += kBlock * Q4Tiled::kTile) {
            const ActBlock* at[kCols];
#pragma GCC unroll 4
            for (int c = 0; c < kCols; c++) at[c] = x[c] + b;
            for (size_t line = 0; line < 3; line++) _mm_prefetch(p + kAhead + 64 * line, _MM_HINT_T0);
            q4_dots<kCols>(p, p + 72, at, dots);
            const __m256 scales = tile_scales(p, p + 72);
#pragma GCC unroll 4
            for (int c = 0; c < kCols; c++) lanes[c] = fma(dots[c], mul(scales, load_f(at[c]->scale)), lanes[c]);
        }
        if (rest == 0 || shared()) return;
        u8 copy[kBlock * Q4Tiled::kTile];
        p = readable(p, rest * Q4Tiled::kTile, sizeof copy, copy);
        q4_dots<kCols>(p, p + 72, at_tail, dots);
        const __m256 scales = _mm256_and_ps(tile_scales(p, p + 72), used);
        for (int c = 0; c < kCols; c++) lanes[c] = fma(dots[c], mul(scales, load_f(tail[c].scale)), lanes[c]);
    }

    void tails(size_t r, size_t other, __m256* first, __m256* second) const {
        constexpr size_t kSpan = kBlock / 2 * Q4Tiled::kTile;
        const size_t offset = full * kBlock * Q4Tiled::kTile, nbytes = rest * Q4Tiled::kTile;
        u8 copy[2][16 + kSpan];  // the scales of the second half are loaded from 8 bytes before it
        const u8* low = readable(t.row(r) + offset, nbytes, kSpan, copy[0] + 16);
        const u8* high = readable(t.row(other) + offset, nbytes, kSpan, copy[1] + 16);
        if (full == 0 && high != copy[1] + 16) {
            std::memcpy(copy[1] + 16, high, kSpan);
            high = copy[1] + 16;
        }
        q4_tails<kCols>(low, high, at_tail, used, first, second);
    }

    // `p`, or a copy of the `nbytes` there that count, if `span` bytes from it are not all inside the mapping.
    const u8* readable(const u8* p, size_t nbytes, size_t span, u8* copy) const {
        if (size_t(t.limit - p) >= span) return p;
        std::memset(copy, 0, span);
        std::memcpy(copy, p, nbytes);
        return copy;
    }

    Q4Tiled t;
    size_t full, rest;
    const ActBlock* x[kCols];
    const ActBlock* at_tail[kCols];
    ActBlock tail[kCols];
    __m256 used;  // lanes of groups that exist
};

template <int kCols>
void q4_gemv(const Job& job, const u8* act) {
    const Q4Gemv<kCols> gemv(job, act);
    auto store = [&](size_t r, const __m256* lanes) {
        for (int c = 0; c < kCols; c++) job.y[size_t(c) * job.y_stride + r] = sum_lanes(lanes[c]);
    };
    for (size_t r = job.r0; r < job.r1; r += 2) {
        __m256 first[kCols], second[kCols];
        gemv.row(r, first);
        const size_t other = r + 1 < job.r1 ? r + 1 : r;
        if (other != r) gemv.row(other, second);
        else std::memcpy(second, first, sizeof second);
        if (gemv.shared()) gemv.tails(r, other, first, second);
        store(r, first);
        if (other != r) store(other, second);
    }
}

}  // namespace cortiq::CORTIQ_KERNELS

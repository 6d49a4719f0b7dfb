// q4_tiled on AVX2: eight groups become one vector of eight exact dot products.
#pragma once
#include "kernels/avx2/act.h"

namespace cortiq::CORTIQ_KERNELS {

// Bytes ahead that are fetched into the cache: a row of a small model is too short for the processor to see a stream.
constexpr size_t kAhead = 2048;

// Where eight tiles of 18 bytes are, 0..3 for the lower half of a vector, 4..7 for the upper one: tile j of a half at
// 18 j from the address of its pair, tiles 0 and 1 or 2 and 3.
struct Tiles {
    Tiles(const u8* low, const u8* high) : Tiles(low, low, high, high) {}
    Tiles(const u8* low, const u8* low2, const u8* high, const u8* high2) : low{low, low2}, high{high, high2} {}
    I nibbles(int j) const { return two(low[j / 2] + 18 * j + 2, high[j / 2] + 18 * j + 2); }
    // Tile i of eight in a row starts at 18 i = 16 i + 2 i: its f16 scale is word i of the i-th 16-byte chunk. Even chunks
    // lie in the low half of four loads, odd ones in the high half, so three blends collect all of them.
    __m256 scales() const {
        const I v = _mm256_blend_epi32(_mm256_blend_epi32(load_i(low[0]), load_i(low[1] + 32), 0x22),
                                       _mm256_blend_epi32(load_i(high[0] - 8), load_i(high[1] + 24), 0x88), 0xcc);
        return _mm256_cvtph_ps(_mm_blend_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1), 0xaa));
    }
    const u8 *low[2], *high[2];
};

// Two vectors of int16 sums, two groups each, into one: [a, b, a, b] pairs in either half.
inline I fold32(I a, I b) { return _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)); }
inline I fold64(I a, I b) { return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)); }

// Exact dot products of eight tiles and eight groups of activations. Sums of products stay below 8 * 15 * 127 * 2 = 30480
// and, zero point included, below 2^15 in every 16-bit lane.
template <int kCols>
[[gnu::always_inline]] inline void q4_dots(const Tiles& tiles, const ActBlock* const* x, __m256* dots) {
    const I low4 = _mm256_set1_epi8(15);
    I sum[kCols][2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        I dot[kCols][2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const int j = 2 * half + i;
            const I nibbles = tiles.nibbles(j);
            const I even = _mm256_and_si256(nibbles, low4);
            const I odd = _mm256_and_si256(_mm256_srli_epi16(nibbles, 4), low4);
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

// One call of the matrix-vector product: where the tiles and the activations of each step are. A row ends with `rest`
// groups that fill no block. The ends of two rows of at most four groups, or of four rows of at most two, share a step:
// each has kShare lanes of it.
template <int kCols, size_t kSharing>
struct Q4Gemv {
    static constexpr size_t kShare = kBlock / kSharing, kBefore = 16;

    Q4Gemv(const Job& job, const u8* act)
        : t(job.w), last(job.r1 - 1), full(t.groups / kBlock), rest(t.groups % kBlock) {
        for (int c = 0; c < kCols; c++) {
            x[c] = reinterpret_cast<const ActBlock*>(act + size_t(c) * act_nbytes(job.w.cols));
            if (rest == 0) continue;
            tail[c] = x[c][full];
            for (size_t g = kShare; g < kBlock; g++) repeat(tail[c], g % kShare, g);
            at_tail[c] = &tail[c];
        }
        used = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(int(rest)), lane_numbers()));
    }

    static I lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
    static void repeat(ActBlock& b, size_t group, size_t again) {
        for (size_t odd = 0; odd < 64; odd += 32)
            std::memcpy(b.split + split_offset(again) + odd, b.split + split_offset(group) + odd, 16);
        b.scale[again] = b.scale[group];
        b.start[again] = b.start[group];
    }

    // The whole blocks of row r; lanes[8 c] belongs to activation row c.
    void blocks(size_t r, __m256* lanes) const {
        const u8* p = t.row(r);
        __m256 dots[kCols], sum[kCols];
#pragma GCC unroll 4
        for (int c = 0; c < kCols; c++) sum[c] = zero_f();
        for (size_t b = 0; b < full; b++, p += kBlock * Q4Tiled::kTile) {
            const ActBlock* at[kCols];
#pragma GCC unroll 4
            for (int c = 0; c < kCols; c++) at[c] = x[c] + b;
            for (size_t line = 0; line < 3; line++) _mm_prefetch(p + kAhead + 64 * line, _MM_HINT_T0);
            const Tiles tiles(p, p + 72);
            q4_dots<kCols>(tiles, at, dots);
            const __m256 scales = tiles.scales();
#pragma GCC unroll 4
            for (int c = 0; c < kCols; c++) sum[c] = fma(dots[c], mul(scales, load_f(at[c]->scale)), sum[c]);
        }
#pragma GCC unroll 4
        for (int c = 0; c < kCols; c++) lanes[8 * c] = sum[c];
    }

    // The ends of rows r .. r + kSharing - 1; lanes[8 c + i] belongs to row r + i. A row too many is the last one again.
    void ends(size_t r, __m256* lanes) const {
        u8 copy[kSharing][kBefore + kShare * Q4Tiled::kTile];
        const u8* end[kSharing];
#pragma GCC unroll 4
        for (size_t i = 0; i < kSharing; i++) end[i] = row_end(smaller(r + i, last), copy[i]);
        // Tiles 2 q and 2 q + 1, which count from the half they are in.
        auto pair = [&](size_t q) {
            return end[q * kSharing / 4] + Q4Tiled::kTile * (2 * q % kShare) - Q4Tiled::kTile * (2 * q % 4);
        };
        const Tiles tiles(pair(0), pair(1), pair(2), pair(3));
        __m256 dots[kCols];
        q4_dots<kCols>(tiles, at_tail, dots);
        const __m256 scales = tiles.scales();
#pragma GCC unroll 4
        for (size_t i = 0; i < kSharing; i++) {
            const I from = _mm256_add_epi32(lane_numbers(), _mm256_set1_epi32(int(i * kShare)));
            auto own = [&](__m256 v) { return i == 0 ? v : _mm256_permutevar8x32_ps(v, from); };
#pragma GCC unroll 4
            for (int c = 0; c < kCols; c++) {
                const __m256 factor = _mm256_and_ps(own(mul(scales, load_f(tail[c].scale))), used);
                lanes[8 * c + i] = fma(own(dots[c]), factor, lanes[8 * c + i]);
            }
        }
    }

    // The tiles behind the blocks of row r, or a copy of them, if not all that a step reads there is inside the mapping:
    // its share of a block, and scales from twelve bytes before it on.
    const u8* row_end(size_t r, u8* copy) const {
        const u8* p = t.row(r) + full * kBlock * Q4Tiled::kTile;
        std::memset(copy, 0, kBefore);
        return readable(p, rest * Q4Tiled::kTile, kShare * Q4Tiled::kTile, full > 0 ? t.limit : p, copy + kBefore);
    }

    Q4Tiled t;
    size_t last, full, rest;
    const ActBlock* x[kCols];
    const ActBlock* at_tail[kCols];
    ActBlock tail[kCols];
    __m256 used;  // lanes of groups that exist
};

template <int kCols, size_t kSharing>
void q4_rows(const Job& job, const u8* act) {
    const Q4Gemv<kCols, kSharing> gemv(job, act);
    for (size_t r = job.r0; r < job.r1; r += 8) {
        const size_t count = smaller<size_t>(8, job.r1 - r);
        __m256 lanes[kCols][8];
        clear_rows(lanes, count);
        for (size_t i = 0; i < count; i++) gemv.blocks(r + i, lanes[0] + i);
        if (gemv.rest != 0)
            for (size_t i = 0; i < count; i += kSharing) gemv.ends(r + i, lanes[0] + i);
        for (int c = 0; c < kCols; c++)
            store_part(job.y + size_t(c) * job.y_stride + r, sum_lanes8(lanes[c]), count);
    }
}

template <int kCols>
void q4_gemv(const Job& job, const u8* act) {
    const size_t rest = job.w.cols / kGroup % kBlock;
    if (rest == 0 || rest > 4) return q4_rows<kCols, 1>(job, act);
    rest > 2 ? q4_rows<kCols, 2>(job, act) : q4_rows<kCols, 4>(job, act);
}

}  // namespace cortiq::CORTIQ_KERNELS

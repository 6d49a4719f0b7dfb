// Attention over the paged cache, and appending to it. Included by isa_*.cpp only.
//
// A "row" is one (query, head) pair; all rows of a job share the keys and values of one kv head. A block of 32 keys is
// handled for all rows before the next one: scores, softmax, weighted values. Tiles of up to six rows keep their sums
// in registers; how rows are tiled does not change the order of any sum.
#pragma once
#include <cmath>
#include <cstring>

#include "ops/ops.h"

namespace cortiq::CORTIQ_OPS_NS {

// Some of a block's 32 keys.
struct Range {
    std::size_t lo, hi;
};

// Asks for the line that lies `ahead` bytes behind p. The hardware follows a stream only within a page, and blocks are
// pages apart. Only half floats come straight from the cache in few rows at a time, where waiting for memory shows.
CORTIQ_INLINE void fetch(const std::uint16_t* p, std::ptrdiff_t ahead) {
    __builtin_prefetch(reinterpret_cast<const char*>(p) + ahead);
}
CORTIQ_INLINE void fetch(const float*, std::ptrdiff_t) {}

// sum[r][j] += a[r] * b[j]. The shorter side is held in registers, the longer one passes through: with twelve sums that
// is what sixteen registers have room for.
template <int R, int V, class A, class B>
CORTIQ_INLINE void outer_product(FW (&sum)[R][V], A a, B b) {
    if constexpr (R > V) {
        FW held[V];
#pragma GCC unroll 8
        for (int j = 0; j < V; j++) held[j] = b(j);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const FW passing = a(r);
#pragma GCC unroll 8
            for (int j = 0; j < V; j++) sum[r][j] = fma(passing, held[j], sum[r][j]);
        }
    } else {
        FW held[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) held[r] = a(r);
#pragma GCC unroll 8
        for (int j = 0; j < V; j++) {
            const FW passing = b(j);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) sum[r][j] = fma(held[r], passing, sum[r][j]);
        }
    }
}

// scores[r][key] = sum over d of q[r][d] * k[d][key] for keys of the range at least
template <int R, int V, class T>
CORTIQ_INLINE void score_tile(const float* q, const T* k, std::size_t head_dim, float* scores, Range range,
                              std::ptrdiff_t ahead) {
    for (std::size_t at = range.lo / (kWide * V) * (kWide * V); at < range.hi; at += kWide * V) {
        FW sum[R][V];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
#pragma GCC unroll 8
            for (int j = 0; j < V; j++) sum[r][j] = splat<FW>(0.0f);
        for (std::size_t d = 0; d < head_dim; d++) {
            if (at == 0) fetch(k + d * kKvBlock, ahead);
            outer_product<R, V>(
                sum, [&](std::size_t r) CORTIQ_LAMBDA { return splat<FW>(q[r * head_dim + d]); },
                [&](std::size_t j) CORTIQ_LAMBDA { return load<FW>(k + d * kKvBlock + at + kWide * j); });
        }
#pragma GCC unroll 8
        for (std::size_t r = 0; r < R; r++)
#pragma GCC unroll 8
            for (std::size_t j = 0; j < V; j++) store(scores + r * kKvBlock + at + kWide * j, sum[r][j]);
    }
}

// sums[r][c, c + V vectors) += p[r][key] * v[key][c, c + V vectors) for `keys`, ascending
template <int R, int V, class T>
CORTIQ_INLINE void value_columns(const float* p, const T* v, std::size_t width, float* sums, Range keys,
                                 std::ptrdiff_t ahead) {
    FW sum[R][V];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; r++)
#pragma GCC unroll 8
        for (std::size_t j = 0; j < V; j++) sum[r][j] = load<FW>(sums + r * width + kWide * j);
    for (std::size_t key = keys.lo; key < keys.hi; key++) {
        fetch(v + key * width, ahead);
        outer_product<R, V>(
            sum, [&](std::size_t r) CORTIQ_LAMBDA { return splat<FW>(p[r * kKvBlock + key]); },
            [&](std::size_t j) CORTIQ_LAMBDA { return load<FW>(v + key * width + kWide * j); });
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; r++)
#pragma GCC unroll 8
        for (std::size_t j = 0; j < V; j++) store(sums + r * width + kWide * j, sum[r][j]);
}

template <int R, int V, class T>
static void value_tile(const float* p, const T* v, std::size_t width, float* sums, Range keys,
                       std::ptrdiff_t ahead) {
    if (keys.lo >= keys.hi) return;
    std::size_t c = 0;
    constexpr std::size_t step = kWide * V;
    for (; c + step <= width; c += step) value_columns<R, V>(p, v + c, width, sums + c, keys, ahead);
    for (; c < width; c += kWide) value_columns<R, 1>(p, v + c, width, sums + c, keys, ahead);
}

// Vectors of keys and of values next to one another in a tile of R rows: of sixteen registers twelve hold sums, of 32
// (the wide ones) 24. A block has no more than 32 keys.
template <int R>
constexpr int kScoreVectors = kWide == 16 || R > 3 ? 2 : 4;
template <int R>
constexpr int kValueVectors = kWide == 16 || R <= 3 ? 4 : 2;

// The part of a job that changes from block to block.
struct Rows {
    std::size_t heads, head_dim, width;  // width: padded head_dim
    std::size_t position, window;        // position: of the first query
    float softcap;
    float *q, *sums, *scores, *top, *total;  // per row: scaled query, weighted values, scores, maximum, sum of weights
    float *keys, *values;                    // one block as f32
};

// Keys of the block that starts at `block_start` which the query at `position` sees.
CORTIQ_INLINE Range visible(std::size_t position, std::size_t window, std::size_t block_start) {
    const std::size_t end = position + 1;
    const std::size_t first = window && end > window ? end - window : 0;
    const std::size_t lo = first > block_start ? first - block_start : 0;
    const std::size_t hi = end > block_start ? end - block_start : 0;
    return {lo < kKvBlock ? lo : kKvBlock, hi < kKvBlock ? hi : kKvBlock};
}

constexpr std::size_t kBlockVectors = kKvBlock / kWide;

// Scores of one row to weights, in place; folds the block into the row's running maximum and sums.
static void softmax_block(const Rows& rows, std::size_t row, Range range) {
    float* s = rows.scores + row * kKvBlock;
    FW score[kBlockVectors];
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kBlockVectors; j++) score[j] = load<FW>(s + kWide * j);
    if (rows.softcap != 0.0f) {
        const FW cap = splat<FW>(rows.softcap);
        for (FW& x : score) x = mul(cap, tanh(div(x, cap)));
    }
    if (range.lo > 0 || range.hi < kKvBlock) {
        const int lo = static_cast<int>(range.lo), hi = static_cast<int>(range.hi);
#pragma GCC unroll 4
        for (std::size_t j = 0; j < kBlockVectors; j++) {
            const int first = static_cast<int>(kWide * j);
            score[j] = keep_lanes(score[j], lo - first, hi - first, -INFINITY);
        }
    }
    F8 eights[4];
    in_eights(score, eights);
    const float block_top = max_lanes(max(max(eights[0], eights[1]), max(eights[2], eights[3])));
    const float old_top = rows.top[row], top = block_top > old_top ? block_top : old_top;
#pragma GCC unroll 4
    for (FW& x : score) x = sub(x, splat<FW>(top));
    exp_weights(score);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kBlockVectors; j++) store(s + kWide * j, score[j]);
    in_eights(score, eights);
    const float sum = sum_lanes(add(add(eights[0], eights[1]), add(eights[2], eights[3])));
    if (top == old_top) {  // nothing to rescale: e^0 is exactly 1
        rows.total[row] += sum;
        return;
    }
    FW shrink[1] = {splat<FW>(old_top - top)};
    exp_weights(shrink);
    float factor[kWide];
    store(factor, shrink[0]);
    rows.total[row] = rows.total[row] * factor[0] + sum;
    float* sums = rows.sums + row * rows.width;
    for (std::size_t c = 0; c < rows.width; c += kWide) store(sums + c, mul(load<FW>(sums + c), shrink[0]));
    rows.top[row] = top;
}

// One block of the cache: keys [head_dim][32], values [32][width], the position of its first key, and how many bytes
// further on the next block lies that will be read (0: none).
template <class T>
struct Block {
    const T *keys, *values;
    std::size_t start;
    std::ptrdiff_t ahead;
};

// Weighted values of R rows whose visible ranges may differ by a few keys at either end.
template <int R, class T>
static void value_rows(const Rows& rows, std::size_t row, const Range* ranges, const Block<T>& block) {
    Range common = ranges[0];
    for (int r = 1; r < R; r++) {
        common.lo = ranges[r].lo > common.lo ? ranges[r].lo : common.lo;
        common.hi = ranges[r].hi < common.hi ? ranges[r].hi : common.hi;
    }
    const float* p = rows.scores + row * kKvBlock;
    float* sums = rows.sums + row * rows.width;
    auto one_row = [&](std::size_t r, Range keys) {
        value_tile<1, kValueVectors<1>>(p + r * kKvBlock, block.values, rows.width, sums + r * rows.width, keys, 0);
    };
    if (common.lo >= common.hi) {
        for (std::size_t r = 0; r < R; r++) one_row(r, ranges[r]);
        return;
    }
    for (std::size_t r = 0; r < R; r++) one_row(r, {ranges[r].lo, common.lo});
    value_tile<R, kValueVectors<R>>(p, block.values, rows.width, sums, common, block.ahead);
    for (std::size_t r = 0; r < R; r++) one_row(r, {common.hi, ranges[r].hi});
}

// R rows from `row` on against one block.
template <int R, class T>
static void block_tile(const Rows& rows, std::size_t row, const Block<T>& block) {
    Range ranges[R];
    std::size_t position = rows.position + row / rows.heads, head = row % rows.heads;
    for (Range& range : ranges) {
        range = visible(position, rows.window, block.start);
        if (++head == rows.heads) head = 0, position++;
    }
    score_tile<R, kScoreVectors<R>>(rows.q + row * rows.head_dim, block.keys, rows.head_dim, rows.scores + row * kKvBlock,
                     {ranges[0].lo, ranges[R - 1].hi}, block.ahead);
    for (std::size_t r = 0; r < R; r++)
        if (ranges[r].lo < ranges[r].hi) softmax_block(rows, row + r, ranges[r]);
    value_rows<R>(rows, row, ranges, block);
}

// Rows [row, end) against one block.
template <class T>
static void block_rows(const Rows& rows, std::size_t row, std::size_t end, Block<T> block) {
    while (row < end) {
        const std::size_t left = end - row, take = left == 7 || left == 8 ? 4 : left < 6 ? left : 6;
        switch (take) {
            case 1: block_tile<1>(rows, row, block); break;
            case 2: block_tile<2>(rows, row, block); break;
            case 3: block_tile<3>(rows, row, block); break;
            case 4: block_tile<4>(rows, row, block); break;
            case 5: block_tile<5>(rows, row, block); break;
            default: block_tile<6>(rows, row, block); break;
        }
        row += take;
        block.ahead = 0;
    }
}

static Rows start_rows(const Attend& job) {
    Rows rows{};
    rows.heads = job.heads;
    rows.head_dim = job.kv.head_dim;
    rows.width = padded_head_dim(job.kv.head_dim);
    rows.position = job.position;
    rows.window = job.window;
    rows.softcap = job.softcap;
    const std::size_t n = job.queries * job.heads;
    float* at = job.scratch;
    rows.keys = at, at += kKvBlock * rows.head_dim;
    rows.values = at, at += kKvBlock * rows.width;
    rows.sums = at, at += n * rows.width;
    rows.scores = at, at += n * kKvBlock;
    rows.q = at, at += n * rows.head_dim;
    rows.top = at, at += n;
    rows.total = at;
    for (std::size_t r = 0; r < n; r++) {
        const float* q = job.q + r / job.heads * job.q_stride + r % job.heads * rows.head_dim;
        map1(q, rows.q + r * rows.head_dim, rows.head_dim,
             [&]<class V>(V x) CORTIQ_LAMBDA { return mul(x, splat<V>(job.scale)); });
        rows.top[r] = -INFINITY;
        rows.total[r] = 0.0f;
    }
    std::memset(rows.sums, 0, n * rows.width * sizeof(float));
    return rows;
}

static void attend(const Attend& job) {
    const Rows rows = start_rows(job);
    const std::size_t last = (job.position + job.queries - 1) / kKvBlock;
    const std::size_t key_count = kKvBlock * rows.head_dim, value_count = kKvBlock * rows.width;
    const std::size_t first_key = job.window && job.position + 1 > job.window ? job.position + 1 - job.window : 0;
    for (std::size_t block = first_key / kKvBlock; block <= last; block++) {
        const std::size_t start = block * kKvBlock;
        // Queries that see anything of this block: from the first one at or behind its start to the last one whose
        // window reaches back to its end.
        const std::size_t from = start > job.position ? start - job.position : 0;
        std::size_t to = job.queries;
        if (job.window && start + kKvBlock - 1 + job.window < job.position + job.queries)
            to = start + kKvBlock - 1 + job.window - job.position;
        const std::size_t row = from * job.heads, end = to * job.heads;
        const std::uint8_t* at = job.kv.base + job.kv.table[block] * job.kv.stride + job.kv.offset;
        const std::int64_t blocks_ahead =
            block < last ? std::int64_t{job.kv.table[block + 1]} - std::int64_t{job.kv.table[block]} : 0;
        const std::ptrdiff_t ahead = blocks_ahead * static_cast<std::ptrdiff_t>(job.kv.stride);
        if (job.kv.f32) {
            const float* k = reinterpret_cast<const float*>(at);
            block_rows(rows, row, end, Block<float>{k, k + key_count, start, ahead});
            continue;
        }
        const std::uint16_t* k = reinterpret_cast<const std::uint16_t*>(at);
        if (end - row <= 12) {  // at most two tiles: converting on the fly is cheaper than through memory
            block_rows(rows, row, end, Block<std::uint16_t>{k, k + key_count, start, ahead});
            continue;
        }
        for (std::size_t i = 0; i < key_count; i += 8) store(rows.keys + i, load_half(k + i));
        for (std::size_t i = 0; i < value_count; i += 8) store(rows.values + i, load_half(k + key_count + i));
        block_rows(rows, row, end, Block<float>{rows.keys, rows.values, start, 0});
    }
    for (std::size_t r = 0; r < job.queries * job.heads; r++) {
        float* out = job.out + r / job.heads * job.out_stride + r % job.heads * rows.head_dim;
        const float inverse = 1.0f / rows.total[r];
        map1(rows.sums + r * rows.width, out, rows.head_dim,
             [&]<class V>(V x) CORTIQ_LAMBDA { return mul(x, splat<V>(inverse)); });
    }
}

static void append(const KvView& kv, std::size_t position, const float* k, const float* v) {
    const std::size_t d_count = kv.head_dim, width = padded_head_dim(d_count), slot = position % kKvBlock;
    std::uint8_t* at = kv.base + kv.table[position / kKvBlock] * kv.stride + kv.offset;
    if (kv.f32) {
        float* keys = reinterpret_cast<float*>(at);
        for (std::size_t d = 0; d < d_count; d++) keys[d * kKvBlock + slot] = k[d];
        float* values = keys + kKvBlock * d_count + slot * width;
        for (std::size_t d = 0; d < d_count; d++) values[d] = v[d];
        for (std::size_t d = d_count; d < width; d++) values[d] = 0.0f;
        return;
    }
    std::uint16_t* keys = reinterpret_cast<std::uint16_t*>(at);
    std::uint16_t* values = keys + kKvBlock * d_count + slot * width;
    for (std::size_t d = 0; d < d_count; d += 8) {
        const std::size_t n = d_count - d < 8 ? d_count - d : 8;
        std::uint16_t half[8];
        store_half(half, load_part(k + d, n));
        for (std::size_t i = 0; i < n; i++) keys[(d + i) * kKvBlock + slot] = half[i];
        store_half(values + d, load_part(v + d, n));
    }
    for (std::size_t d = (d_count + 7) / 8 * 8; d < width; d += 8) store_half(values + d, splat(0.0f));
}

}  // namespace cortiq::CORTIQ_OPS_NS

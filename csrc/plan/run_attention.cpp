// Rotation, appending to the cache, attention. A unit of work is one tile of rows and one kv head (or a part of its
// query heads): the tile lies inside one block of the cache, so no two units write to the same cache line of keys.
#include <algorithm>

#include "plan/executor.h"

namespace cortiq {

namespace {

// (query, head) rows of one unit: more would not stay in the L2 cache.
constexpr std::size_t kMostRows = 256;

}  // namespace

// Parts into which the query heads of one kv head are split.
std::size_t Executor::head_parts(const AttentionOp& op) const {
    const std::size_t group = op.heads / op.kv_heads, threads = static_cast<std::size_t>(program_.options.threads);
    const std::size_t units = tile_count_ * op.kv_heads;
    const std::size_t for_cache = (group * longest_tile_ + kMostRows - 1) / kMostRows;
    const std::size_t for_threads = (threads + units - 1) / units;
    return std::min(group, std::max(for_cache, for_threads));
}

// Whether attention rotates and appends itself: when a unit needs no keys that another unit appends in this step.
bool Executor::rope_joins(const AttentionOp& op) const {
    return op.prologue != kNone && one_tile_each_ && head_parts(op) == 1;
}

std::size_t Executor::chunks_of(const AttentionOp& op) const { return tile_count_ * op.kv_heads * head_parts(op); }

void Executor::head_rows(const RopeAppendOp& op, const Tile& tile, int buffer, int norm, std::size_t column) {
    const RmsNorm rms{program_.vector(norm), op.head_dim, op.eps, op.plus_one, false};
    for (std::size_t i = 0; i < tile.count; i++) {
        float* x = program_.buffer(buffer).row(tile.row + i) + column;
        if (norm != kNone) program_.ops->rmsnorm(rms, x, x);
        if (op.rope == kNone) continue;
        const RopeTable& rope = program_.ropes[static_cast<std::size_t>(op.rope)];
        program_.ops->rope(x, rope.cosine(tile.position + i), rope.sine(tile.position + i), rope.half());
    }
}

void Executor::rope_tile(const RopeAppendOp& op, const Tile& tile, std::size_t kv_head) {
    const std::size_t group = op.heads / op.kv_heads, column = kv_head * op.head_dim;
    for (std::size_t h = 0; h < group; h++)
        head_rows(op, tile, op.q, op.q_norm, (kv_head * group + h) * op.head_dim);
    head_rows(op, tile, op.k, op.k_norm, column);
    const KvView kv = cache_->view(tile.sequence, static_cast<std::size_t>(op.layer), kv_head);
    const Buffer &k = program_.buffer(op.k), &v = program_.buffer(op.v);
    for (std::size_t i = 0; i < tile.count; i++)
        program_.ops->append(kv, tile.position + i, k.row(tile.row + i) + column, v.row(tile.row + i) + column);
}

void Executor::run_op(const RopeAppendOp& op, Task& task) {
    for (std::size_t unit = 0; task.next(unit);)
        rope_tile(op, tiles_[unit % tile_count_], unit / tile_count_);
}

void Executor::run_op(const AttentionOp& op, Task& task) {
    const std::size_t group = op.heads / op.kv_heads, parts = head_parts(op);
    const bool joins = rope_joins(op);
    const Buffer &q = program_.buffer(op.q), &out = program_.buffer(op.out);
    for (std::size_t unit = 0; task.next(unit);) {
        // Head by head, so that neighbours in a slab share keys; the last tiles see most keys and go first.
        const Tile& tile = tiles_[tile_count_ - 1 - unit % tile_count_];
        const std::size_t kv_head = unit / tile_count_ / parts, part = unit / tile_count_ % parts;
        const std::size_t h0 = kv_head * group + group * part / parts, h1 = kv_head * group + group * (part + 1) / parts;
        if (joins) rope_tile(std::get<RopeAppendOp>(program_.list[static_cast<std::size_t>(op.prologue)]), tile, kv_head);
        program_.ops->attend(Attend{
            .q = q.row(tile.row) + h0 * op.head_dim,
            .q_stride = q.stride,
            .out = out.row(tile.row) + h0 * op.head_dim,
            .out_stride = out.stride,
            .queries = tile.count,
            .heads = h1 - h0,
            .position = tile.position,
            .window = cache_->layer(static_cast<std::size_t>(op.layer)).window,
            .scale = op.scale,
            .softcap = op.softcap,
            .kv = cache_->view(tile.sequence, static_cast<std::size_t>(op.layer), kv_head),
            .scratch = private_[task.id()].attention,
        });
        if (op.quantize)
            for (std::size_t i = 0; i < tile.count; i++)
                quantize_row(out, tile.row + i, h0 * op.head_dim, (h1 - h0) * op.head_dim);
    }
}

}  // namespace cortiq

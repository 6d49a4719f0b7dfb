// Memory and the walk through the list; the operators themselves are in run_rows.cpp, run_linear.cpp, run_attention.cpp.
#include "plan/executor.h"

#include <algorithm>
#include <utility>

namespace cortiq {

namespace {

// Positions one tile may hold: the block of the cache it lies in.
std::size_t tile_end(std::size_t position) { return position / kKvBlock * kKvBlock + kKvBlock; }

}  // namespace

Executor::Executor(Program program)
    : program_(std::move(program)), pool_(program_.options.threads), chunks_(program_.options.threads) {
    const PlanOptions& o = program_.options;
    cache_ = std::make_unique<KvCache>(program_.layers, KvLimits{o.max_sequences, o.context, o.max_tokens, o.kv_f32});
    allocate();
    tiles_.resize(o.max_tokens);
    wanted_.resize(o.max_tokens);
}

void Executor::allocate() {
    const PlanOptions& o = program_.options;
    std::size_t widest = 0, act = 0, kernel = 0, attention = 0;
    for (const Buffer& buffer : program_.buffers) {
        widest = std::max(widest, buffer.stride);
        act = std::max(act, buffer.act_nbytes);
    }
    for (const MatrixView& tensor : program_.tensors)
        kernel = std::max(kernel, program_.kernels->scratch_nbytes(tensor.cols, o.max_tokens));
    for (const Op& op : program_.list)
        if (const auto* a = std::get_if<AttentionOp>(&op))
            attention = std::max(attention, attend_scratch(kKvBlock * (a->heads / a->kv_heads), a->head_dim));
    product_floats_ = std::max<std::size_t>(o.max_tokens * 64, 32 * 512);

    Carver carver;
    struct Spot {
        std::size_t norm, act, product, attention, kernel;
    };
    std::vector<std::pair<std::size_t, std::size_t>> buffers;
    std::vector<Spot> spots;
    for (const Buffer& buffer : program_.buffers) {
        const std::size_t data = carver.add(checked_mul(o.max_tokens, buffer.stride * sizeof(float)));
        buffers.emplace_back(data, carver.add(checked_mul(o.max_tokens, buffer.act_nbytes)));
    }
    for (int i = 0; i < o.threads; i++)
        spots.push_back(Spot{carver.add(kPrivateRows * widest * sizeof(float)), carver.add(kPrivateRows * act),
                             carver.add(2 * product_floats_ * sizeof(float)), carver.add(attention * sizeof(float)),
                             carver.add(kernel)});
    memory_ = Region(carver.size(), "activations");
    std::uint8_t* base = memory_.data();
    for (std::size_t i = 0; i < buffers.size(); i++) {
        program_.buffers[i].data = reinterpret_cast<float*>(base + buffers[i].first);
        program_.buffers[i].act = base + buffers[i].second;
    }
    for (const Spot& spot : spots)
        private_.push_back(Private{reinterpret_cast<float*>(base + spot.norm), base + spot.act,
                                   reinterpret_cast<float*>(base + spot.product),
                                   reinterpret_cast<float*>(base + spot.attention), Scratch{base + spot.kernel, kernel}});
}

void Executor::prepare(const Batch& batch) {
    batch_ = batch;
    tile_count_ = longest_tile_ = wanted_count_ = 0;
    one_tile_each_ = true;
    std::size_t row = 0, end_position = 0;
    for (std::size_t s = 0; s < batch.sequence_count; s++) {
        std::size_t position = cache_->length(batch.sequences[s]);
        const std::size_t end = position + static_cast<std::size_t>(batch.counts[s]);
        one_tile_each_ = one_tile_each_ && tile_end(position) >= end;
        while (position < end) {
            const std::size_t count = std::min(end, tile_end(position)) - position;
            tiles_[tile_count_++] = Tile{batch.sequences[s], row, count, position};
            longest_tile_ = std::max(longest_tile_, count);
            row += count;
            position += count;
        }
        end_position = std::max(end_position, end);
    }
    for (std::size_t i = 0; i < batch.rows; i++)
        if (batch.wanted[i]) wanted_[wanted_count_++] = static_cast<std::uint32_t>(i);
    for (RopeTable& rope : program_.ropes) rope.ensure(end_position);
}

bool Executor::skipped(const Op& op, std::size_t rows) const {
    if (const auto* norm = std::get_if<NormOp>(&op)) return norm->fused && rows <= kPrivateRows;
    if (const auto* rope = std::get_if<RopeAppendOp>(&op))
        return rope->partner != kNone &&
               rope_joins(std::get<AttentionOp>(program_.list[static_cast<std::size_t>(rope->partner)]));
    if (std::holds_alternative<SelectOp>(op)) return wanted_count_ == batch_.rows;
    return false;
}

void Executor::walk(int id) {
    // Every thread decides the same from the same data, so all of them meet at the same barriers.
    Turn turn{id, phase_, batch_.rows};
    for (const Op& op : program_.list) {
        if (std::holds_alternative<SelectOp>(op) && wanted_count_ == 0) break;
        if (skipped(op, turn.rows)) continue;
        chunks_.enter(id, turn.phase);
        std::visit([&](const auto& o) { run_op(o, turn); }, op);
        if (std::holds_alternative<SelectOp>(op)) turn.rows = wanted_count_;
        if (id == 0) stop_[turn.phase % 2] = cancel_.load(std::memory_order_relaxed);
        pool_.barrier(id);
        if (stop_[turn.phase++ % 2]) break;
    }
    if (id == 0) phase_ = turn.phase;
}

void Executor::entry(void* executor, int id) { static_cast<Executor*>(executor)->walk(id); }

std::size_t Executor::run(const Batch& batch, bool& finished) {
    prepare(batch);
    if (!cancel_.load(std::memory_order_relaxed)) pool_.run(entry, this);
    finished = !cancel_.exchange(false, std::memory_order_relaxed);
    return wanted_count_;
}

}  // namespace cortiq

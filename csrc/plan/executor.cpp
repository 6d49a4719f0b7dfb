// Memory and the walk through the list; the operators themselves are in run_rows.cpp, run_linear.cpp, run_attention.cpp.
#include "plan/executor.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace cortiq {

namespace {

// Positions one tile may hold: the block of the cache it lies in.
std::size_t tile_end(std::size_t position) { return position / kKvBlock * kKvBlock + kKvBlock; }

}  // namespace

Executor::Executor(Program program)
    : program_(std::move(program)), pool_(program_.options.threads) {
    const PlanOptions& o = program_.options;
    cache_ = std::make_unique<KvCache>(program_.layers, KvLimits{o.max_sequences, o.context, o.max_tokens, o.kv_f32});
    allocate();
    tiles_.resize(o.max_tokens);
    wanted_.resize(o.max_tokens);
    steps_.resize(program_.list.size());
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
        const std::size_t floats = buffer.int8_only ? 0 : checked_mul(o.max_tokens, buffer.stride);
        const std::size_t data = carver.add(checked_mul(floats, sizeof(float)));
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

void Executor::cut_tiles(const Batch& batch) {
    tile_count_ = longest_tile_ = 0;
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
    for (RopeTable& rope : program_.ropes) rope.ensure(end_position);
}

void Executor::prepare(const Batch& batch) {
    batch_ = batch;
    cut_tiles(batch);
    wanted_count_ = step_count_ = at_ = 0;
    for (std::size_t i = 0; i < batch.rows; i++)
        if (batch.wanted[i]) wanted_[wanted_count_++] = static_cast<std::uint32_t>(i);
    std::size_t rows = batch.rows;
    for (const Op& op : program_.list) {
        const bool select = std::holds_alternative<SelectOp>(op);
        if (select && wanted_count_ == 0) break;
        if (skipped(op, rows)) continue;
        const std::size_t total = chunks(op, rows);
        if (total >= ThreadPool::kMostChunks) throw Error("Limit", "batch", "the step is too large");
        steps_[step_count_++] = Step{&op, rows, total};
        if (select) rows = wanted_count_;
    }
}

bool Executor::skipped(const Op& op, std::size_t rows) const {
    if (const auto* norm = std::get_if<NormOp>(&op)) return norm->fused && rows <= kPrivateRows;
    if (const auto* rope = std::get_if<RopeAppendOp>(&op))
        return rope->partner != kNone &&
               rope_joins(std::get<AttentionOp>(program_.list[static_cast<std::size_t>(rope->partner)]));
    if (std::holds_alternative<SelectOp>(op)) return wanted_count_ == batch_.rows;
    return false;
}

std::size_t Executor::chunks(const Op& op, std::size_t rows) const {
    if (const auto* linear = std::get_if<LinearOp>(&op)) return chunks_of(*linear, rows);
    if (const auto* glu = std::get_if<GluOp>(&op)) return chunks_of(*glu, rows);
    if (const auto* logits = std::get_if<LogitsOp>(&op)) return chunks_of(*logits, rows);
    if (const auto* attention = std::get_if<AttentionOp>(&op)) return chunks_of(*attention);
    if (const auto* rope = std::get_if<RopeAppendOp>(&op)) return tile_count_ * rope->kv_heads;
    if (std::holds_alternative<SelectOp>(op)) return 1;
    return row_chunks(rows);
}

std::size_t Executor::advance(void* executor) {
    Executor& self = *static_cast<Executor*>(executor);
    if (self.at_ == self.step_count_ || self.cancel_.load(std::memory_order_relaxed)) return 0;
    return self.steps_[self.at_++].chunks;
}

void Executor::work(void* executor, Turn& turn) {
    Executor& self = *static_cast<Executor*>(executor);
    const Step& step = self.steps_[self.at_ - 1];
    Task task{turn, step.rows};
    std::visit([&](const auto& op) { self.run_op(op, task); }, *step.op);
}

std::size_t Executor::run(const Batch& batch, bool& finished) {
    prepare(batch);
    pool_.run(Phases{this, advance, work});
    finished = !cancel_.exchange(false, std::memory_order_relaxed);
    return wanted_count_;
}

}  // namespace cortiq

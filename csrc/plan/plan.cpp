#include "plan/plan.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "core/allocations.h"
#include "core/error.h"
#include "core/map_guard.h"

namespace cortiq {

namespace {

std::int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * std::int64_t{1000000000} + t.tv_nsec;
}

[[noreturn]] void usage(const char* code, const std::string& message) { throw Error("UsageError", code, message); }

}  // namespace

Plan::Plan(PlanOptions options) : builder_(std::make_unique<PlanBuilder>(options)), seen_(options.max_sequences) {}

PlanBuilder& Plan::builder() {
    if (!builder_) usage("finished", "the plan is finished");
    return *builder_;
}

void Plan::finish() {
    Program program = builder().take();
    builder_.reset();
    compile(program);
    weight_nbytes_ = weight_nbytes(program);
    executor_ = std::make_unique<Executor>(std::move(program));
}

Executor& Plan::running() const {
    if (!executor_) usage("unfinished", "the plan is not finished");
    return *executor_;
}

int Plan::new_sequence() {
    Executor& executor = running();
    const std::lock_guard lock(mutex_);
    return executor.cache().create();
}

void Plan::free_sequence(int sequence) {
    Executor& executor = running();
    const std::lock_guard lock(mutex_);
    executor.cache().release(sequence);
}

std::size_t Plan::length(int sequence) const {
    const Executor& executor = running();
    const std::lock_guard lock(mutex_);
    return executor.cache().length(sequence);
}

void Plan::truncate(int sequence, std::size_t n) {
    Executor& executor = running();
    const std::lock_guard lock(mutex_);
    executor.cache().truncate(sequence, n);
}

std::size_t Plan::vocab() const { return running().program().vocab; }

std::size_t Plan::token_limit() const {
    const Program& program = executor_->program();
    return program.tensor(std::get<EmbedOp>(program.list.front()).weight).rows;
}

void Plan::check(const Batch& batch, std::size_t out_rows) const {
    const PlanOptions& options = executor_->program().options;
    if (batch.rows == 0) usage("batch", "a step needs at least one token");
    if (batch.rows > options.max_tokens)
        usage("max_tokens", std::to_string(batch.rows) + " tokens in a step, at most " + std::to_string(options.max_tokens));
    std::size_t total = 0, wanted = 0;
    for (std::size_t s = 0; s < batch.sequence_count; s++) {
        const std::size_t length = executor_->cache().length(batch.sequences[s]);
        if (batch.counts[s] < 1) usage("batch", "each sequence of a step needs at least one token");
        const auto count = static_cast<std::size_t>(batch.counts[s]);
        total += count;
        if (length + count > options.context)
            usage("context", "sequence " + std::to_string(batch.sequences[s]) + " would have " +
                                 std::to_string(length + count) + " positions, at most " + std::to_string(options.context));
    }
    if (total != batch.rows) usage("batch", "the counts do not add up to the number of tokens");
    const auto limit = static_cast<std::int64_t>(token_limit());
    for (std::size_t i = 0; i < batch.rows; i++) {
        if (batch.tokens[i] < 0 || batch.tokens[i] >= limit)
            usage("token", "token " + std::to_string(batch.tokens[i]) + " is not in 0.." + std::to_string(limit - 1));
        wanted += batch.wanted[i] != 0;
    }
    if (wanted > options.max_outputs || wanted > out_rows)
        usage("max_outputs", std::to_string(wanted) + " rows of logits wanted, room for " +
                                 std::to_string(std::min(options.max_outputs, out_rows)));
}

std::size_t Plan::step(const Batch& batch, std::size_t out_rows) {
    Executor& executor = running();
    const std::lock_guard lock(mutex_);
    const std::uint64_t allocations = allocation_count(), lost = lost_pages();
    const std::int64_t start = now_ns();
    check(batch, out_rows);
    std::fill(seen_.begin(), seen_.end(), std::uint8_t{0});
    for (std::size_t s = 0; s < batch.sequence_count; s++)
        if (seen_[static_cast<std::size_t>(batch.sequences[s])]++) usage("batch", "a sequence appears twice in a step");
    KvCache& cache = executor.cache();
    for (std::size_t s = 0; s < batch.sequence_count; s++)
        cache.extend(batch.sequences[s], static_cast<std::size_t>(batch.counts[s]));
    bool finished = false;
    std::size_t outputs = 0;
    try {
        outputs = executor.run(batch, finished);
        if (lost_pages() != lost) check_weights();
    } catch (...) {
        for (std::size_t s = 0; s < batch.sequence_count; s++) cache.rollback(batch.sequences[s]);
        throw;
    }
    for (std::size_t s = 0; s < batch.sequence_count; s++)
        if (finished)
            cache.commit(batch.sequences[s], static_cast<std::size_t>(batch.counts[s]));
        else
            cache.rollback(batch.sequences[s]);
    last_step_ns_ = now_ns() - start;
    last_step_allocations_ = allocation_count() - allocations;
    steps_++;
    if (!finished) throw Error("CortiqError", "cancelled", "the step was cancelled");
    return outputs;
}

void Plan::check_weights() const {
    for (const MatrixView& weight : executor_->program().tensors)
        if (lost_at(weight.data)) throw Error("Changed", "file", "the file shrank while it was in use");
}

void Plan::cancel() { running().cancel(); }

PlanStats Plan::stats() const {
    const Executor& executor = running();
    const std::lock_guard lock(mutex_);
    const PlanOptions& options = executor.program().options;
    return PlanStats{isa_name(options.isa),   options.exact,  options.threads,
                     executor.cache().committed_nbytes(), weight_nbytes_, steps_,
                     executor.pool().phases(), last_step_ns_, last_step_allocations_, allocation_count()};
}

}  // namespace cortiq

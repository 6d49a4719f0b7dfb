// A model's forward pass: described once, then run step by step over batches of sequences.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plan/builder.h"
#include "plan/executor.h"

namespace cortiq {

struct PlanStats {
    std::string isa;
    bool exact;
    int threads;
    std::size_t kv_nbytes;      // committed
    std::size_t weight_nbytes;  // read by one decoded token
    std::uint64_t steps, phases;
    std::int64_t last_step_ns;
    std::uint64_t last_step_allocations;  // calls of operator new, by any thread
    std::uint64_t allocations;            // since the extension was loaded
};

class Plan {
public:
    explicit Plan(PlanOptions options);

    // The description, until finish(); Error{"UsageError", "finished"} afterwards.
    PlanBuilder& builder();
    void finish();

    int new_sequence();
    void free_sequence(int sequence);
    std::size_t length(int sequence) const;
    void truncate(int sequence, std::size_t n);

    // Appends counts[s] tokens to sequences[s], in order, and writes one row of logits for each wanted token.
    // Returns their number. Throws Error{"UsageError", ...} for whatever cannot be run, before anything changes, and
    // Error{"CortiqError", "cancelled"} after cancel() and Error{"Changed", "file"} when weights were lost under the step:
    // all sequences are then as before.
    std::size_t step(const Batch& batch, std::size_t out_rows);
    // From any thread: ends the step in progress, or the next one, at its next operator.
    void cancel();
    std::size_t vocab() const;
    PlanStats stats() const;

private:
    void check(const Batch& batch, std::size_t out_rows) const;
    void check_weights() const;
    std::size_t token_limit() const;
    Executor& running() const;

    std::unique_ptr<PlanBuilder> builder_;
    std::unique_ptr<Executor> executor_;
    mutable std::mutex mutex_;  // one step or change of sequences at a time
    std::vector<std::uint8_t> seen_;  // per sequence, while a batch is checked
    std::size_t weight_nbytes_ = 0;
    std::uint64_t steps_ = 0, last_step_allocations_ = 0;
    std::int64_t last_step_ns_ = 0;
};

}  // namespace cortiq

// Runs a compiled program on a batch: an operator is one phase of the thread pool.
//
// Work inside an operator is shared out in chunks. What one chunk computes does not depend on who computes it nor on
// what else there is, so neither threads nor batch mates change a row's result.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/thread_pool.h"
#include "plan/kv_cache.h"
#include "plan/memory.h"
#include "plan/program.h"

namespace cortiq {

// A norm is repeated by every thread, saving a barrier and a hand-over, when there are at most so many rows.
inline constexpr std::size_t kPrivateRows = 2;

// Rows [row, row + count) of a step: positions of one sequence inside one block of the cache.
struct Tile {
    int sequence;
    std::size_t row, count, position;
};

// What the caller asks for: spans over his arrays, checked by Plan.
struct Batch {
    const std::int32_t* sequences;
    const std::int32_t* counts;
    std::size_t sequence_count;
    const std::int32_t* tokens;
    const std::uint8_t* wanted;
    std::size_t rows;
    float* out;  // [.., vocab]
};

class Executor {
public:
    explicit Executor(Program program);

    // Runs the whole list. The cache has room for the batch already. Returns the number of logits rows; false in
    // `finished` if cancel() was called: the results are unusable then.
    std::size_t run(const Batch& batch, bool& finished);
    void cancel() { cancel_.store(true, std::memory_order_relaxed); }

    const Program& program() const { return program_; }
    KvCache& cache() { return *cache_; }
    const KvCache& cache() const { return *cache_; }
    const ThreadPool& pool() const { return pool_; }

private:
    // Memory one thread has to itself.
    struct Private {
        float* norm = nullptr;         // [kPrivateRows][widest]
        std::uint8_t* act = nullptr;   // [kPrivateRows][widest, quantized]
        float* product = nullptr;      // two blocks of products before they reach their buffer
        float* attention = nullptr;
        Scratch kernel;
    };
    // One operator of one step.
    struct Step {
        const Op* op;
        std::size_t rows, chunks;
    };
    // The same as one thread sees it.
    struct Task {
        Turn& turn;
        std::size_t rows;
        std::size_t id() const { return static_cast<std::size_t>(turn.id()); }
        bool next(std::size_t& chunk) { return turn.next(chunk); }
    };
    // Rows of an operator's input in both forms.
    struct Input {
        const float* x;
        std::size_t x_stride;
        const std::uint8_t* act;
    };
    // Rows [r0, r1) of a matrix, and the int8 rows they multiply, null for f32 ones.
    struct Piece {
        const MatrixView* weight;
        const std::uint8_t* act;
        std::size_t r0, r1;
    };

    void allocate();
    void prepare(const Batch& batch);
    void cut_tiles(const Batch& batch);
    static std::size_t advance(void* executor);
    static void work(void* executor, Turn& turn);
    bool skipped(const Op& op, std::size_t rows) const;

    // Chunks of an operator over `rows` rows.
    std::size_t chunks(const Op& op, std::size_t rows) const;
    static std::size_t row_chunks(std::size_t rows);
    std::size_t chunks_of(const LinearOp& op, std::size_t rows) const;
    std::size_t chunks_of(const GluOp& op, std::size_t rows) const;
    std::size_t chunks_of(const LogitsOp& op, std::size_t rows) const;
    std::size_t chunks_of(const AttentionOp& op) const;

    // Calls f(row) for all rows, shared out.
    template <class F>
    void for_rows(Task& task, F f);

    void run_op(const EmbedOp& op, Task& task);
    void run_op(const NormOp& op, Task& task);
    void run_op(const LinearOp& op, Task& task);
    void run_op(const RopeAppendOp& op, Task& task);
    void run_op(const AttentionOp& op, Task& task);
    void run_op(const GluOp& op, Task& task);
    void run_op(const SelectOp& op, Task& task);
    void run_op(const LogitsOp& op, Task& task);
    void run_op(const QuantizeOp& op, Task& task);
    void run_op(const FoldOp& op, Task& task);

    void quantize_row(const Buffer& buffer, std::size_t row, std::size_t column, std::size_t width) const;
    Input input(int buffer, int prologue, bool int8, const Task& task);
    const std::uint8_t* act_of(const Int8& int8, const Input& in) const;
    std::size_t chunk_rows(std::size_t weight_rows, std::size_t row_nbytes, std::size_t batch_rows) const;
    std::size_t chunk_rows(const LinearOp& op, std::size_t batch_rows) const;
    std::size_t chunk_rows(const GluOp& op, std::size_t batch_rows) const;
    std::size_t chunk_rows(const LogitsOp& op, std::size_t batch_rows) const;
    void product(const Piece& piece, const Input& in, const Task& task, float* y, std::size_t y_stride);
    void linear_piece(const LinearOp& op, const Segment& segment, const Piece& piece, const Input& in, const Task& task);
    void glu_piece(const GluOp& op, const Input& in, const Task& task, std::size_t r0, std::size_t r1);
    std::size_t head_parts(const AttentionOp& op) const;
    bool rope_joins(const AttentionOp& op) const;
    void rope_tile(const RopeAppendOp& op, const Tile& tile, std::size_t kv_head);
    void head_rows(const RopeAppendOp& op, const Tile& tile, int buffer, int norm, std::size_t column);

    Program program_;
    std::unique_ptr<KvCache> cache_;
    ThreadPool pool_;
    Region memory_;
    std::vector<Private> private_;  // per thread
    std::size_t product_floats_ = 0;

    // The step in progress.
    Batch batch_{};
    std::vector<Tile> tiles_;
    std::size_t tile_count_ = 0, longest_tile_ = 0;
    bool one_tile_each_ = false;
    std::vector<std::uint32_t> wanted_;  // rows whose logits are wanted
    std::size_t wanted_count_ = 0;
    std::vector<Step> steps_;  // operators to run, in order
    std::size_t step_count_ = 0, at_ = 0;
    std::atomic<bool> cancel_{false};
};

}  // namespace cortiq

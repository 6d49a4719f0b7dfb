// Operators that go row by row: embedding, norm, quantization, selection.
#include <cstring>

#include "plan/executor.h"

namespace cortiq {

namespace {

// With many rows a chunk is several of them: fewer visits to the shared counters.
constexpr std::size_t kManyRows = 64, kRowsPerChunk = 8;

}  // namespace

std::size_t Executor::row_chunks(std::size_t rows) {
    return rows >= kManyRows ? (rows + kRowsPerChunk - 1) / kRowsPerChunk : rows;
}

template <class F>
void Executor::for_rows(Task& task, F f) {
    const std::size_t step = task.rows >= kManyRows ? kRowsPerChunk : 1;
    for (std::size_t chunk = 0; task.next(chunk);)
        for (std::size_t i = chunk * step; i < task.rows && i < (chunk + 1) * step; i++) f(i);
}

void Executor::quantize_row(const Buffer& buffer, std::size_t row, std::size_t column, std::size_t width) const {
    program_.kernels->quantize(buffer.row(row), buffer.width, column / kGroup, (column + width + kGroup - 1) / kGroup,
                               buffer.act_row(row));
}

void Executor::run_op(const EmbedOp& op, Task& task) {
    const MatrixView& weight = program_.tensor(op.weight);
    const Buffer& out = program_.buffer(op.out);
    for_rows(task, [&](std::size_t i) {
        program_.kernels->gather(weight, static_cast<std::size_t>(batch_.tokens[i]), out.row(i));
        if (op.scale != 1.0f) program_.ops->scale(out.row(i), out.width, op.scale);
    });
}

void Executor::run_op(const NormOp& op, Task& task) {
    const Buffer &in = program_.buffer(op.inp), &out = program_.buffer(op.out);
    const RmsNorm norm{program_.vector(op.weight), in.width, op.eps, op.plus_one, op.accumulate};
    for_rows(task, [&](std::size_t i) {
        program_.ops->rmsnorm(norm, in.row(i), out.row(i));
        if (op.quantize) quantize_row(out, i, 0, out.width);
    });
}

void Executor::run_op(const QuantizeOp& op, Task& task) {
    const Buffer& buffer = program_.buffer(op.buffer);
    for_rows(task, [&](std::size_t i) { quantize_row(buffer, i, 0, buffer.width); });
}

void Executor::run_op(const FoldOp& op, Task& task) {
    const Buffer& in = program_.buffer(op.inp);
    float* folded = private_[task.id()].norm;
    for_rows(task, [&](std::size_t i) {
        for (const FoldOp::Target& target : op.targets) {
            const Buffer& out = program_.buffer(target.out);
            program_.kernels->fold(program_.tensor(target.weight), in.row(i), folded);
            program_.kernels->quantize(folded, out.width, 0, (out.width + kGroup - 1) / kGroup, out.act_row(i));
        }
    });
}

void Executor::run_op(const SelectOp& op, Task& task) {
    std::size_t only = 0;
    if (!task.next(only)) return;
    // Wanted rows move up, in ascending order: none is overwritten before it has moved.
    for (int index : op.buffers) {
        const Buffer& buffer = program_.buffer(index);
        for (std::size_t i = 0; i < wanted_count_; i++) {
            if (wanted_[i] == i) continue;
            std::memcpy(buffer.row(i), buffer.row(wanted_[i]), buffer.width * sizeof(float));
            std::memcpy(buffer.act_row(i), buffer.act_row(wanted_[i]), buffer.act_nbytes);
        }
    }
}

}  // namespace cortiq

// Matrix products: linear, the gated unit, logits.
#include <algorithm>

#include "plan/executor.h"

namespace cortiq {

namespace {

// Weights read per chunk: long enough a stream, soon enough done. One thread alone keeps nobody waiting.
constexpr std::size_t kChunkNbytes = 128 << 10, kLongChunkNbytes = 512 << 10;
constexpr std::size_t kChunksPerThread = 8;
constexpr std::size_t kChunkAlign = 32;  // rows: a whole group of the next operator's int8 activations
constexpr std::size_t kFewRows = 32, kMostFew = 512, kMostMany = 64;

std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

// Rows of a weight matrix per chunk, `weight_rows` of them in the whole operator.
std::size_t Executor::chunk_rows(std::size_t weight_rows, std::size_t row_nbytes, std::size_t batch_rows) const {
    const auto threads = static_cast<std::size_t>(program_.options.threads);
    const std::size_t share = threads == 1 ? weight_rows : weight_rows / (kChunksPerThread * threads);
    const std::size_t most = batch_rows <= kFewRows ? kMostFew : kMostMany;
    const std::size_t nbytes = threads == 1 ? kLongChunkNbytes : kChunkNbytes;
    const std::size_t rows = std::min({share, nbytes / std::max<std::size_t>(row_nbytes, 1), most});
    return std::max(rows / kChunkAlign, std::size_t{1}) * kChunkAlign;
}

// The rows an operator multiplies: the shared buffer, or this thread's own norm of a few rows.
Executor::Input Executor::input(int buffer, int prologue, bool int8, const Task& task) {
    const Buffer& shared = program_.buffer(buffer);
    if (prologue == kNone || task.rows > kPrivateRows) return {shared.data, shared.stride, shared.act};
    const NormOp& op = std::get<NormOp>(program_.list[static_cast<std::size_t>(prologue)]);
    const Private& own = private_[task.id()];
    const Buffer& raw = program_.buffer(op.inp);
    const RmsNorm norm{program_.vector(op.weight), raw.width, op.eps, op.plus_one, false};
    for (std::size_t i = 0; i < task.rows; i++) {
        float* x = own.norm + i * shared.stride;
        program_.ops->rmsnorm(norm, raw.row(i), x);
        if (int8)
            program_.kernels->quantize(x, shared.width, 0, ceil_div(shared.width, kGroup), own.act + i * shared.act_nbytes);
    }
    return {own.norm, shared.stride, own.act};
}

const std::uint8_t* Executor::act_of(const Int8& int8, const Input& in) const {
    if (!int8.on) return nullptr;
    return int8.fold == kNone ? in.act : program_.buffer(int8.fold).act;
}

// y[i * y_stride + r] for the rows of the piece, counted from row 0 of the matrix.
void Executor::product(const Piece& piece, const Input& in, const Task& task, float* y, std::size_t y_stride) {
    const Scratch scratch = private_[task.id()].kernel;
    if (piece.act)
        program_.kernels->linear_int8(*piece.weight, piece.act, task.rows, piece.r0, piece.r1, y, y_stride, scratch);
    else
        program_.kernels->linear_f32(*piece.weight, in.x, in.x_stride, task.rows, piece.r0, piece.r1, y, y_stride, scratch);
}

void Executor::linear_piece(const LinearOp& op, const Segment& segment, const Piece& piece, const Input& in,
                            const Task& task) {
    const Buffer& out = program_.buffer(segment.out);
    const float* bias = program_.vector(segment.bias);
    const std::size_t n = piece.r1 - piece.r0;
    if (!op.accumulate) {
        product(piece, in, task, out.data + segment.column, out.stride);
        if (bias)
            for (std::size_t i = 0; i < task.rows; i++)
                program_.ops->add(out.row(i) + segment.column + piece.r0, bias + piece.r0, n);
        return;
    }
    // What is added to goes through memory of this thread's own, one block of `n` columns.
    float* block = private_[task.id()].product;
    product(piece, in, task, block - piece.r0, n);
    for (std::size_t i = 0; i < task.rows; i++) {
        if (bias) program_.ops->add(block + i * n, bias + piece.r0, n);
        program_.ops->add(out.row(i) + segment.column + piece.r0, block + i * n, n);
    }
}

std::size_t Executor::chunk_rows(const LinearOp& op, std::size_t batch_rows) const {
    std::size_t rows = 0, nbytes = 0;
    for (const Segment& segment : op.segments) {
        rows += program_.tensor(segment.weight).rows;
        nbytes += program_.tensor(segment.weight).nbytes;
    }
    return chunk_rows(rows, nbytes / rows, batch_rows);
}

std::size_t Executor::chunks_of(const LinearOp& op, std::size_t rows) const {
    const std::size_t step = chunk_rows(op, rows);
    std::size_t total = 0;
    for (const Segment& segment : op.segments) total += ceil_div(program_.tensor(segment.weight).rows, step);
    return total;
}

void Executor::run_op(const LinearOp& op, Task& task) {
    bool int8 = false;
    for (const Segment& segment : op.segments) int8 |= segment.int8.on;
    const Input in = input(op.inp, op.prologue, int8, task);
    const std::size_t step = chunk_rows(op, task.rows);
    for (std::size_t chunk = 0; task.next(chunk);) {
        std::size_t at = chunk;
        for (const Segment& segment : op.segments) {
            const MatrixView& weight = program_.tensor(segment.weight);
            const std::size_t count = ceil_div(weight.rows, step);
            if (at < count) {
                const Piece piece{&weight, act_of(segment.int8, in), at * step, std::min(weight.rows, (at + 1) * step)};
                linear_piece(op, segment, piece, in, task);
                break;
            }
            at -= count;
        }
    }
}

void Executor::glu_piece(const GluOp& op, const Input& in, const Task& task, std::size_t r0, std::size_t r1) {
    const Buffer& out = program_.buffer(op.out);
    const std::size_t n = r1 - r0;
    float* gate = private_[task.id()].product;
    float* up = gate + product_floats_;
    product(Piece{&program_.tensor(op.gate), act_of(op.gate_int8, in), r0, r1}, in, task, gate - r0, n);
    product(Piece{&program_.tensor(op.up), act_of(op.up_int8, in), r0, r1}, in, task, up - r0, n);
    for (std::size_t i = 0; i < task.rows; i++) {
        program_.ops->glu(op.act, gate + i * n, up + i * n, out.row(i) + r0, n);
        if (op.quantize) quantize_row(out, i, r0, n);
    }
}

std::size_t Executor::chunk_rows(const GluOp& op, std::size_t batch_rows) const {
    const MatrixView &gate = program_.tensor(op.gate), &up = program_.tensor(op.up);
    return chunk_rows(gate.rows, (gate.nbytes + up.nbytes) / gate.rows, batch_rows);
}

std::size_t Executor::chunks_of(const GluOp& op, std::size_t rows) const {
    return ceil_div(program_.tensor(op.gate).rows, chunk_rows(op, rows));
}

void Executor::run_op(const GluOp& op, Task& task) {
    const std::size_t rows = program_.tensor(op.gate).rows, step = chunk_rows(op, task.rows);
    const Input in = input(op.inp, op.prologue, op.gate_int8.on || op.up_int8.on, task);
    for (std::size_t chunk = 0; task.next(chunk);)
        glu_piece(op, in, task, chunk * step, std::min(rows, (chunk + 1) * step));
}

std::size_t Executor::chunk_rows(const LogitsOp& op, std::size_t batch_rows) const {
    const MatrixView& weight = program_.tensor(op.weight);
    return chunk_rows(weight.rows, weight.nbytes / weight.rows, batch_rows);
}

std::size_t Executor::chunks_of(const LogitsOp& op, std::size_t rows) const {
    return ceil_div(program_.tensor(op.weight).rows, chunk_rows(op, rows));
}

void Executor::run_op(const LogitsOp& op, Task& task) {
    const MatrixView& weight = program_.tensor(op.weight);
    const Input in = input(op.inp, op.prologue, op.int8.on, task);
    const std::size_t step = chunk_rows(op, task.rows);
    for (std::size_t chunk = 0; task.next(chunk);) {
        const Piece piece{&weight, act_of(op.int8, in), chunk * step, std::min(weight.rows, (chunk + 1) * step)};
        product(piece, in, task, batch_.out, weight.rows);
        if (op.scale == 1.0f && op.softcap == 0.0f) continue;
        for (std::size_t i = 0; i < task.rows; i++)
            program_.ops->softcap(batch_.out + i * weight.rows + piece.r0, piece.r1 - piece.r0, op.scale, op.softcap);
    }
}

}  // namespace cortiq

// What a plan is made of, as data: written by PlanBuilder, completed by compile(), run by Executor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/cpu.h"
#include "core/view.h"
#include "kernels/kernels.h"
#include "plan/kv_cache.h"
#include "plan/op.h"
#include "plan/rope_table.h"

namespace cortiq {

struct PlanOptions {
    Isa isa;
    bool exact;               // f32 activations against decoded weights
    int threads;              // 0: as many as there are processors
    std::size_t max_tokens;   // rows of one step
    std::size_t max_outputs;  // rows of logits of one step
    std::size_t context;      // positions of a sequence
    std::size_t max_sequences;
    bool kv_f32;
};

// f32 [max_tokens, width]; with act, the same rows quantized.
struct Buffer {
    std::size_t width;
    std::size_t stride = 0;  // floats from row to row
    float* data = nullptr;
    bool int8 = false;       // somebody reads it as int8
    bool int8_only = false;  // and nobody as f32: there is no data
    std::size_t act_nbytes = 0;
    std::uint8_t* act = nullptr;

    float* row(std::size_t i) const { return data + i * stride; }
    std::uint8_t* act_row(std::size_t i) const { return act + i * act_nbytes; }
};

struct Program {
    PlanOptions options;
    const Kernels* kernels;
    const Ops* ops;
    std::vector<MatrixView> tensors;
    std::vector<std::vector<float>> vectors;
    std::vector<Buffer> buffers;
    std::vector<KvLayer> layers;
    std::vector<RopeTable> ropes;
    std::vector<Op> list;
    std::size_t vocab = 0;  // rows of the logits matrix

    const MatrixView& tensor(int i) const { return tensors[static_cast<std::size_t>(i)]; }
    const float* vector(int i) const { return i == kNone ? nullptr : vectors[static_cast<std::size_t>(i)].data(); }
    const Buffer& buffer(int i) const { return buffers[static_cast<std::size_t>(i)]; }
};

// Decides who quantizes what, joins norms and rotations to the operators that follow, and sizes the buffers.
void compile(Program& program);

// Bytes of weights that one decoded token reads.
std::size_t weight_nbytes(const Program& program);

}  // namespace cortiq

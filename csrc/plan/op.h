// The instruction set of a plan: one record per operator. Buffers, tensors, vectors, layers are indices into Program.
#pragma once
#include <cstddef>
#include <variant>
#include <vector>

#include "ops/ops.h"

namespace cortiq {

inline constexpr int kNone = -1;

struct EmbedOp {  // out = row `token` of weight, times scale
    int out;
    int weight;
    float scale;
};

struct NormOp {  // out = rmsnorm(inp), or out += rmsnorm(inp)
    int inp;
    int out;
    int weight;
    float eps;
    bool plus_one;
    bool accumulate;
    bool quantize = false;  // compiled: also write out as int8
    bool fused = false;     // compiled: the next operator may do it per thread, see kPrivateRows
};

// Whose int8 form a product takes: `inp`'s own, or a fold of it. Compiled.
struct Int8 {
    bool on = false;
    int fold = kNone;  // the buffer that a FoldOp fills for this matrix alone
};

struct Segment {  // columns [column, column + rows of weight) of out
    int weight;
    int bias;  // or kNone
    int out;
    std::size_t column;
    Int8 int8 = {};  // compiled
};

struct LinearOp {  // out[column ..] = inp weight^T + bias, or += that
    int inp;
    std::vector<Segment> segments;
    bool accumulate;
    int prologue = kNone;  // compiled: index of the NormOp that made inp, if this operator may do it
};

struct RopeAppendOp {  // per head: q and k norm, rotation; then k and v go into the cache
    int q, k, v;
    int layer;
    std::size_t heads, kv_heads, head_dim;
    int rope;            // index of a RopeTable, or kNone
    int q_norm, k_norm;  // or kNone
    float eps;
    bool plus_one;
    int partner = kNone;  // compiled: index of the AttentionOp that follows and may do it
};

struct AttentionOp {
    int q, out;
    int layer;
    std::size_t heads, kv_heads, head_dim;
    float scale, softcap;
    bool quantize = false;  // compiled: also write out as int8, head by head
    int prologue = kNone;   // compiled: index of the RopeAppendOp before, if this operator may do it
};

struct GluOp {  // out = act(inp gate^T) * (inp up^T)
    int inp;
    int gate, up;
    int out;
    Activation act;
    Int8 gate_int8 = {}, up_int8 = {};
    bool quantize = false;  // compiled: also write out as int8, 32 columns by 32
    int prologue = kNone;   // compiled, as in LinearOp
};

struct SelectOp {                    // from here on only the rows whose logits are wanted
    std::vector<int> buffers = {};   // compiled: buffers somebody reads later
};

struct LogitsOp {  // the caller's array = softcap(inp weight^T * scale)
    int inp;
    int weight;
    float softcap, scale;
    Int8 int8 = {};
    int prologue = kNone;
};

struct QuantizeOp {  // compiled only: int8 form of a buffer that no operator could make on the way
    int buffer;
};

struct FoldOp {  // compiled only: int8 forms of inp times the column factors of a matrix each
    int inp;
    struct Target {
        int weight;
        int out;
    };
    std::vector<Target> targets;
};

using Op =
    std::variant<EmbedOp, NormOp, LinearOp, RopeAppendOp, AttentionOp, GluOp, SelectOp, LogitsOp, QuantizeOp, FoldOp>;

}  // namespace cortiq

// Takes a plan's description and checks it: every index, width and shape, before anything runs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/program.h"

namespace cortiq {

struct TensorSpec {
    int dtype;
    std::size_t rows, cols;
    std::uintptr_t address;
    std::size_t nbytes;
    std::uintptr_t limit;  // end of the mapping
};

struct RopeSpec {
    int q, k, v, kv;
    std::size_t heads, kv_heads, head_dim;
    int inv_freq;
    float attention_factor;
    int q_norm, k_norm;
    float eps;
    bool plus_one;
};

// All methods throw Error{"ShapeMismatch" | "UsageError" | "Limit", ...}, tensor() also "Bounds" and
// "UnsupportedFeature"; handles count from 0.
class PlanBuilder {
public:
    explicit PlanBuilder(PlanOptions options);

    int tensor(const TensorSpec& spec);
    int vector(std::vector<float> values);
    int buffer(std::size_t width);
    int kv_layer(std::size_t kv_heads, std::size_t head_dim, std::size_t window);

    void embed(EmbedOp op);
    void rmsnorm(NormOp op);
    void linear(LinearOp op);
    void rope_append(const RopeSpec& spec);
    void attention(AttentionOp op);
    void glu(GluOp op);
    void select();
    void logits(LogitsOp op);

    // The finished description. The builder is used up.
    Program take();

private:
    const MatrixView& matrix(int handle, const char* what) const;
    std::size_t width(int handle, const char* what) const;
    void check_vector(int handle, std::size_t length, const char* what) const;
    const KvLayer& layer(int handle, std::size_t kv_heads, std::size_t head_dim) const;
    void add(Op op);

    Program program_;
    bool selected_ = false, has_logits_ = false, taken_ = false;
    struct RopeKey {
        int inv_freq;
        float attention_factor;
    };
    std::vector<RopeKey> rope_keys_;
    std::vector<bool> appended_;  // per layer
};

}  // namespace cortiq

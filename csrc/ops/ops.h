// The operators other than matrix products: one table of functions per instruction set.
//
// Every result is a fixed function of one row: the order of all sums is written out below, products that enter a sum
// are fused, and exp and tanh are our own polynomials (at most 2 ulp off). All instruction sets give the same bits.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/cpu.h"

namespace cortiq {

inline constexpr std::size_t kKvBlock = 32;  // positions in one block of the KV cache

enum class Activation { silu, gelu_tanh };

struct RmsNorm {
    const float* weight;
    std::size_t width;
    float eps;
    bool plus_one;    // multiply by 1 + w
    bool accumulate;  // add the result to what is there
};

// The keys and values of one kv head of one layer. Block b of the sequence lies at base + table[b] * stride + offset:
// keys [head_dim][32], then values [32][padded head_dim], both f16 or both f32.
struct KvView {
    std::uint8_t* base;
    const std::uint32_t* table;
    std::size_t stride;
    std::size_t offset;
    std::size_t head_dim;
    bool f32;
};

// Width of a row of values in the cache and of attention's sums: vector loads need no tail.
constexpr std::size_t padded_head_dim(std::size_t head_dim) { return (head_dim + 15) / 16 * 16; }
// Bytes of one kv head's share of a block.
constexpr std::size_t kv_head_nbytes(std::size_t head_dim, bool f32) {
    return kKvBlock * (head_dim + padded_head_dim(head_dim)) * (f32 ? 4 : 2);
}

// Consecutive queries of one sequence against one kv head. Query i is at `position` + i and sees the keys from
// max(0, position + i - window + 1) (window 0: from 0) up to itself. Row r of q and out starts at r * stride; head h
// lies head_dim * h further on.
struct Attend {
    const float* q;
    std::size_t q_stride;
    float* out;
    std::size_t out_stride;
    std::size_t queries;
    std::size_t heads;  // query heads that share this kv head
    std::size_t position;
    std::size_t window;
    float scale;
    float softcap;  // 0: none
    KvView kv;
    float* scratch;  // attend_scratch(queries * heads, head_dim) floats, 64-byte aligned
};

constexpr std::size_t attend_scratch(std::size_t rows, std::size_t head_dim) {
    const std::size_t padded = padded_head_dim(head_dim);
    return rows * (head_dim + padded + kKvBlock + 2) + kKvBlock * (head_dim + padded) + 64;
}

struct Ops {
    Isa isa;

    // y = x / sqrt(mean(x^2) + eps) * w. Lane i % 8 adds x_i^2 in f64; the lanes are summed as
    // ((0+4)+(2+6)) + ((1+5)+(3+7)); then (x * f32(1 / sqrt(..))) * w. x may be y.
    void (*rmsnorm)(const RmsNorm& norm, const float* x, float* y);

    // Rotates the pairs (x_i, x_{i + half}) by the angle whose cosine and sine are given, in place.
    void (*rope)(float* x, const float* cosine, const float* sine, std::size_t half);

    // out = act(gate) * up. silu(v) = v / (1 + exp(-v)); gelu_tanh(v) = v / (1 + exp(-2u)),
    // u = sqrt(2/pi) * (v + 0.044715 v^3), which is 0.5 v (1 + tanh u).
    void (*glu)(Activation act, const float* gate, const float* up, float* out, std::size_t n);

    // x = cap * tanh(x * scale / cap); cap 0: x * scale.
    void (*softcap)(float* x, std::size_t n, float scale, float cap);

    void (*add)(float* y, const float* x, std::size_t n);    // y += x
    void (*scale)(float* y, std::size_t n, float factor);    // y *= factor
    void (*exp)(const float* x, float* y, std::size_t n);    // what the operators above use
    void (*tanh)(const float* x, float* y, std::size_t n);

    // Writes head_dim keys and values at `position` of the cache.
    void (*append)(const KvView& kv, std::size_t position, const float* k, const float* v);

    // softmax(scale * q k^T) v with online softmax over blocks of 32 absolute positions in ascending order. A score
    // adds fma(scale * q_d, k_d) for ascending d. Per block: one maximum, sums rescaled by exp(old - new), the weights of
    // keys 8j + i summed over j as (0+1)+(2+3), then over i as in rmsnorm, values added by fma for ascending keys.
    void (*attend)(const Attend& job);
};

const Ops& ops(Isa isa);

}  // namespace cortiq

// The elementwise operators and the table of all of them. Included by isa_*.cpp only.
#pragma once
#include "ops/ops.h"
// clang-format off
#include "ops/lanes.h"
#include "ops/attention.h"
// clang-format on

namespace cortiq::CORTIQ_OPS_NS {

static void rmsnorm(const RmsNorm& norm, const float* x, float* y) {
    const std::size_t n = norm.width;
    D8 squares = zero_squares();
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8) squares = add_squares(squares, load(x + i));
    if (i < n) squares = add_squares(squares, load_part(x + i, n - i));
    const double mean = sum_squares(squares) / static_cast<double>(n);
    const float inverse = static_cast<float>(1.0 / __builtin_sqrt(mean + static_cast<double>(norm.eps)));
    const float one = norm.plus_one ? 1.0f : 0.0f;
    auto normed = [&]<class V>(V value, V weight) CORTIQ_LAMBDA {
        return mul(mul(value, splat<V>(inverse)), add(weight, splat<V>(one)));
    };
    if (!norm.accumulate) return map2(x, norm.weight, y, n, normed);
    for (i = 0; i + 8 <= n; i += 8) store(y + i, add(load(y + i), normed(load(x + i), load(norm.weight + i))));
    if (i < n)
        store_part(y + i, add(load_part(y + i, n - i), normed(load_part(x + i, n - i), load_part(norm.weight + i, n - i))),
                   n - i);
}

static void rope(float* x, const float* cosine, const float* sine, std::size_t half) {
    auto rotate = [&](std::size_t i, auto get, auto put) CORTIQ_LAMBDA {
        const F8 a = get(x + i), b = get(x + half + i), c = get(cosine + i), s = get(sine + i);
        put(x + i, fma(a, c, sub(splat(0.0f), mul(b, s))));
        put(x + half + i, fma(b, c, mul(a, s)));
    };
    std::size_t i = 0;
    for (; i + 8 <= half; i += 8)
        rotate(i, [](const float* p) { return load(p); }, [](float* p, F8 a) { store(p, a); });
    const std::size_t rest = half - i;
    if (rest)
        rotate(i, [rest](const float* p) { return load_part(p, rest); },
               [rest](float* p, F8 a) { store_part(p, a, rest); });
}

static void glu(Activation act, const float* gate, const float* up, float* out, std::size_t n) {
    auto gated = []<class V>(V v, V exponent, V other) CORTIQ_LAMBDA {
        return mul(div(v, add(splat<V>(1.0f), exp(exponent))), other);
    };
    if (act == Activation::silu)
        return map2(gate, up, out, n, [&]<class V>(V v, V u) CORTIQ_LAMBDA {
            return gated(v, sub(splat<V>(0.0f), v), u);
        });
    // -2 sqrt(2/pi) (v + 0.044715 v^3)
    map2(gate, up, out, n, [&]<class V>(V v, V u) CORTIQ_LAMBDA {
        const V cubic = fma(mul(v, mul(v, v)), splat<V>(0.044715f), v);
        return gated(v, mul(splat<V>(-1.5957691216f), cubic), u);
    });
}

static void softcap(float* x, std::size_t n, float factor, float cap) {
    if (cap == 0.0f) return map1(x, x, n, [&]<class V>(V v) CORTIQ_LAMBDA { return mul(v, splat<V>(factor)); });
    map1(x, x, n, [&]<class V>(V v) CORTIQ_LAMBDA {
        return mul(splat<V>(cap), tanh(div(mul(v, splat<V>(factor)), splat<V>(cap))));
    });
}

static void add_rows(float* y, const float* x, std::size_t n) {
    map2(y, x, y, n, [](auto a, auto b) CORTIQ_LAMBDA { return add(a, b); });
}

static void scale_row(float* y, std::size_t n, float factor) { softcap(y, n, factor, 0.0f); }

static void exp_row(const float* x, float* y, std::size_t n) {
    map1(x, y, n, [](auto a) CORTIQ_LAMBDA { return exp(a); });
}

static void tanh_row(const float* x, float* y, std::size_t n) {
    map1(x, y, n, [](auto a) CORTIQ_LAMBDA { return tanh(a); });
}

static Ops make_table(Isa isa) {
    return Ops{isa, rmsnorm, rope, glu, softcap, add_rows, scale_row, exp_row, tanh_row, append, attend};
}

}  // namespace cortiq::CORTIQ_OPS_NS

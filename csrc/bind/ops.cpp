// The operators other than products, singly: same code as in a plan, for tests and for use from Python.
#include "ops/ops.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "plan/kv_cache.h"
#include "plan/rope_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cortiq {

namespace {

template <class T>
using Cube = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Array = nb::ndarray<nb::numpy, float>;

// A new array with the shape given, and where its values go.
struct Fresh {
    explicit Fresh(std::initializer_list<std::size_t> shape) {
        std::size_t n = 1;
        for (std::size_t extent : shape) n *= extent;
        auto values = std::make_unique<float[]>(n);
        data = values.get();
        nb::capsule owner(values.release(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
        array = Array(data, shape.size(), shape.begin(), owner);
    }
    Array array;
    float* data;
};

Array rmsnorm(const std::string& isa, Matrix<float> x, Vector<float> weight, float eps, bool plus_one) {
    expect_size(weight.size(), x.shape(1), "weight");
    const Ops& table = ops(isa_from_name(isa));
    Fresh y({x.shape(0), x.shape(1)});
    const RmsNorm norm{weight.data(), x.shape(1), eps, plus_one, false};
    for (std::size_t i = 0; i < x.shape(0); i++) table.rmsnorm(norm, x.data() + i * x.shape(1), y.data + i * x.shape(1));
    return y.array;
}

Array rope(const std::string& isa, Cube<float> x, std::int64_t position, Vector<float> inv_freq, float attention_factor) {
    if (position < 0) throw Error("UsageError", "position", "position must not be negative");
    if (inv_freq.size() == 0 || 2 * inv_freq.size() > x.shape(2))
        throw Error("ShapeMismatch", "size", "inv_freq must hold 1 to head_dim / 2 frequencies");
    const Ops& table = ops(isa_from_name(isa));
    const std::size_t first = static_cast<std::size_t>(position), rows = x.shape(0), heads = x.shape(1);
    RopeTable angles(std::vector<float>(inv_freq.data(), inv_freq.data() + inv_freq.size()), attention_factor, first + rows);
    angles.ensure(first + rows);
    Fresh y({rows, heads, x.shape(2)});
    std::copy_n(x.data(), x.size(), y.data);
    for (std::size_t i = 0; i < rows; i++)
        for (std::size_t h = 0; h < heads; h++)
            table.rope(y.data + (i * heads + h) * x.shape(2), angles.cosine(first + i), angles.sine(first + i), angles.half());
    return y.array;
}

Array glu(const std::string& isa, const std::string& act, Matrix<float> gate, Matrix<float> up) {
    expect_size(up.shape(0), gate.shape(0), "a column of up");
    expect_size(up.shape(1), gate.shape(1), "a row of up");
    if (act != "silu" && act != "gelu_tanh") throw Error("UsageError", "act", "act must be silu or gelu_tanh, not " + act);
    const Ops& table = ops(isa_from_name(isa));
    Fresh y({gate.shape(0), gate.shape(1)});
    const std::size_t n = gate.shape(1);
    for (std::size_t i = 0; i < gate.shape(0); i++)
        table.glu(act == "silu" ? Activation::silu : Activation::gelu_tanh, gate.data() + i * n, up.data() + i * n,
                  y.data + i * n, n);
    return y.array;
}

struct AttentionShape {
    std::size_t queries, heads, head_dim, keys, kv_heads;
};

AttentionShape attention_shape(const Cube<float>& q, const Cube<float>& k, const Cube<float>& v) {
    const AttentionShape shape{q.shape(0), q.shape(1), q.shape(2), k.shape(0), k.shape(1)};
    if (k.shape(2) != shape.head_dim || v.shape(0) != shape.keys || v.shape(1) != shape.kv_heads ||
        v.shape(2) != shape.head_dim || shape.kv_heads == 0 || shape.heads % shape.kv_heads)
        throw Error("ShapeMismatch", "size", "q, k and v do not belong together");
    if (shape.queries == 0 || shape.queries > shape.keys)
        throw Error("ShapeMismatch", "size", "there must be 1 to as many queries as keys");
    return shape;
}

// Causal attention of the last queries over all keys, through a cache of their own.
Array attention(const std::string& isa, Cube<float> q, Cube<float> k, Cube<float> v, float scale, std::int64_t window,
                float softcap, const std::string& kv_dtype) {
    const AttentionShape s = attention_shape(q, k, v);
    if (window < 0) throw Error("UsageError", "window", "window must not be negative");
    if (kv_dtype != "f16" && kv_dtype != "f32") throw Error("UsageError", "kv_dtype", "kv_dtype must be f16 or f32");
    const Ops& table = ops(isa_from_name(isa));
    const bool f32 = kv_dtype == "f32";
    KvCache cache({KvLayer{.kv_heads = s.kv_heads, .head_dim = s.head_dim, .window = 0}}, KvLimits{1, s.keys, s.keys, f32});
    const int sequence = cache.create();
    cache.extend(sequence, s.keys);
    std::vector<float> scratch(attend_scratch(s.queries * (s.heads / s.kv_heads), s.head_dim));
    Fresh out({s.queries, s.heads, s.head_dim});
    for (std::size_t h = 0; h < s.kv_heads; h++) {
        const KvView view = cache.view(sequence, 0, h);
        for (std::size_t t = 0; t < s.keys; t++) {
            const std::size_t at = (t * s.kv_heads + h) * s.head_dim;
            table.append(view, t, k.data() + at, v.data() + at);
        }
        const std::size_t group = s.heads / s.kv_heads, column = h * group * s.head_dim;
        table.attend(Attend{q.data() + column, s.heads * s.head_dim, out.data + column, s.heads * s.head_dim, s.queries,
                            group, s.keys - s.queries, static_cast<std::size_t>(window), scale, softcap, view,
                            scratch.data()});
    }
    return out.array;
}

Array softcap(const std::string& isa, Vector<float> x, float scale, float cap) {
    Fresh y({x.size()});
    std::copy_n(x.data(), x.size(), y.data);
    ops(isa_from_name(isa)).softcap(y.data, x.size(), scale, cap);
    return y.array;
}

template <void (*Ops::*member)(const float*, float*, std::size_t)>
Array elementwise(const std::string& isa, Vector<float> x) {
    Fresh y({x.size()});
    (ops(isa_from_name(isa)).*member)(x.data(), y.data, x.size());
    return y.array;
}

}  // namespace

void bind_ops(nb::module_& m) {
    m.def("rmsnorm", rmsnorm, "isa"_a, "x"_a, "weight"_a, "eps"_a, "plus_one"_a);
    m.def("rope", rope, "isa"_a, "x"_a, "position"_a, "inv_freq"_a, "attention_factor"_a);
    m.def("glu", glu, "isa"_a, "act"_a, "gate"_a, "up"_a);
    m.def("attention", attention, "isa"_a, "q"_a, "k"_a, "v"_a, "scale"_a, "window"_a, "softcap"_a, "kv_dtype"_a);
    m.def("softcap", softcap, "isa"_a, "x"_a, "scale"_a, "cap"_a);
    m.def("exp", elementwise<&Ops::exp>, "isa"_a, "x"_a);
    m.def("tanh", elementwise<&Ops::tanh>, "isa"_a, "x"_a);
}

}  // namespace cortiq

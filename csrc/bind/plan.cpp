// The executor.
#include "plan/plan.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "bind/arrays.h"
#include "bind/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cortiq {

namespace {

// A plan, and the Python objects whose memory its tensors lie in.
struct BoundPlan {
    explicit BoundPlan(PlanOptions options) : plan(options) {}
    Plan plan;
    std::vector<nb::object> owners;
};

using SegmentTuple = std::tuple<int, int, int, std::int64_t>;

bool one_of(const std::string& value, const char* first, const char* second, const char* what) {
    if (value == first) return true;
    if (value == second) return false;
    throw Error("UsageError", what, std::string(what) + " must be " + first + " or " + second + ", not " + value);
}

std::size_t size(std::int64_t value, const char* what) {
    if (value < 0) throw Error("UsageError", what, std::string(what) + " must not be negative");
    return static_cast<std::size_t>(value);
}

void construct(BoundPlan* self, const std::string& isa, const std::string& mode, int threads, std::int64_t max_tokens,
               std::int64_t max_outputs, std::int64_t context, std::int64_t max_sequences, const std::string& kv_dtype) {
    PlanOptions options{};
    options.isa = isa_from_name(isa);
    options.exact = one_of(mode, "exact", "fast", "mode");
    options.threads = threads;
    options.max_tokens = size(max_tokens, "max_tokens");
    options.max_outputs = size(max_outputs, "max_outputs");
    options.context = size(context, "context");
    options.max_sequences = size(max_sequences, "max_sequences");
    options.kv_f32 = one_of(kv_dtype, "f32", "f16", "kv_dtype");
    new (self) BoundPlan(options);
}

std::size_t step(BoundPlan& self, Vector<std::int32_t> sequences, Vector<std::int32_t> counts,
                 Vector<std::int32_t> tokens, Vector<std::uint8_t> wanted, MatrixOut out) {
    expect_size(counts.size(), sequences.size(), "counts");
    expect_size(wanted.size(), tokens.size(), "wanted");
    expect_size(out.shape(1), self.plan.vocab(), "a row of out");
    const Batch batch{sequences.data(), counts.data(), sequences.size(), tokens.data(),
                      wanted.data(),    tokens.size(), out.data()};
    const nb::gil_scoped_release release;
    return self.plan.step(batch, out.shape(0));
}

nb::dict stats(const BoundPlan& self) {
    const PlanStats s = [&] {
        const nb::gil_scoped_release release;
        return self.plan.stats();
    }();
    nb::dict result;
    result["isa"] = s.isa;
    result["mode"] = s.exact ? "exact" : "fast";
    result["threads"] = s.threads;
    result["kv_bytes"] = s.kv_nbytes;
    result["weight_bytes_per_token"] = s.weight_nbytes;
    result["steps"] = s.steps;
    result["phases"] = s.phases;
    result["last_step_ns"] = s.last_step_ns;
    result["heap_allocations_last_step"] = s.last_step_allocations;
    result["allocations"] = s.allocations;
    return result;
}

Activation activation(const std::string& name) {
    return one_of(name, "silu", "gelu_tanh", "act") ? Activation::silu : Activation::gelu_tanh;
}

void bind_description(nb::class_<BoundPlan>& plan) {
    plan.def("tensor",
             [](BoundPlan& self, nb::object owner, int dtype, std::int64_t rows, std::int64_t cols, std::uintptr_t address,
                std::int64_t nbytes, std::uintptr_t limit) {
                 const int handle = self.plan.builder().tensor(
                     {dtype, size(rows, "rows"), size(cols, "cols"), address, size(nbytes, "nbytes"), limit});
                 self.owners.push_back(std::move(owner));
                 return handle;
             },
             "owner"_a.none(), "dtype"_a, "rows"_a, "cols"_a, "address"_a, "nbytes"_a, "limit"_a)
        .def("vector",
             [](BoundPlan& self, Vector<float> values) {
                 return self.plan.builder().vector(std::vector<float>(values.data(), values.data() + values.size()));
             },
             "values"_a)
        .def("buffer", [](BoundPlan& self, std::int64_t width) { return self.plan.builder().buffer(size(width, "width")); },
             "width"_a)
        .def("kv_layer",
             [](BoundPlan& self, std::int64_t kv_heads, std::int64_t head_dim, std::int64_t window) {
                 return self.plan.builder().kv_layer(size(kv_heads, "kv_heads"), size(head_dim, "head_dim"),
                                                     size(window, "window"));
             },
             "kv_heads"_a, "head_dim"_a, "window"_a = 0);
}

void bind_operators(nb::class_<BoundPlan>& plan) {
    plan.def("embed",
             [](BoundPlan& self, int out, int weight, float scale) { self.plan.builder().embed({out, weight, scale}); },
             nb::kw_only(), "out"_a, "weight"_a, "scale"_a = 1.0f)
        .def("rmsnorm",
             [](BoundPlan& self, int inp, int out, int weight, float eps, bool plus_one, bool accumulate) {
                 self.plan.builder().rmsnorm({inp, out, weight, eps, plus_one, accumulate});
             },
             nb::kw_only(), "inp"_a, "out"_a, "weight"_a, "eps"_a, "plus_one"_a = false, "accumulate"_a = false)
        .def("linear",
             [](BoundPlan& self, int inp, const std::vector<SegmentTuple>& segments, bool accumulate) {
                 LinearOp op{inp, {}, accumulate};
                 for (const auto& [weight, bias, out, column] : segments)
                     op.segments.push_back(Segment{weight, bias, out, size(column, "column")});
                 self.plan.builder().linear(std::move(op));
             },
             nb::kw_only(), "inp"_a, "segments"_a, "accumulate"_a = false)
        .def("rope_append",
             [](BoundPlan& self, int q, int k, int v, int kv, std::int64_t heads, std::int64_t kv_heads,
                std::int64_t head_dim, int inv_freq, float attention_factor, int q_norm, int k_norm, float eps,
                bool plus_one) {
                 self.plan.builder().rope_append({q, k, v, kv, size(heads, "heads"), size(kv_heads, "kv_heads"),
                                                  size(head_dim, "head_dim"), inv_freq, attention_factor, q_norm, k_norm,
                                                  eps, plus_one});
             },
             nb::kw_only(), "q"_a, "k"_a, "v"_a, "kv"_a, "heads"_a, "kv_heads"_a, "head_dim"_a, "inv_freq"_a,
             "attention_factor"_a = 1.0f, "q_norm"_a = kNone, "k_norm"_a = kNone, "eps"_a = 1e-6f, "plus_one"_a = false)
        .def("attention",
             [](BoundPlan& self, int q, int out, int kv, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                float scale, float softcap) {
                 self.plan.builder().attention({q, out, kv, size(heads, "heads"), size(kv_heads, "kv_heads"),
                                                size(head_dim, "head_dim"), scale, softcap});
             },
             nb::kw_only(), "q"_a, "out"_a, "kv"_a, "heads"_a, "kv_heads"_a, "head_dim"_a, "scale"_a, "softcap"_a = 0.0f)
        .def("glu",
             [](BoundPlan& self, int inp, int gate, int up, int out, const std::string& act) {
                 self.plan.builder().glu({inp, gate, up, out, activation(act)});
             },
             nb::kw_only(), "inp"_a, "gate"_a, "up"_a, "out"_a, "act"_a)
        .def("select", [](BoundPlan& self) { self.plan.builder().select(); })
        .def("logits",
             [](BoundPlan& self, int inp, int weight, float softcap, float scale) {
                 self.plan.builder().logits({inp, weight, softcap, scale});
             },
             nb::kw_only(), "inp"_a, "weight"_a, "softcap"_a = 0.0f, "scale"_a = 1.0f)
        .def("finish", [](BoundPlan& self) { self.plan.finish(); });
}

// Calls that may wait for a step in progress let the interpreter go on meanwhile.
void bind_running(nb::class_<BoundPlan>& plan) {
    using Unlocked = nb::call_guard<nb::gil_scoped_release>;
    plan.def("new_sequence",
             [](BoundPlan& self, int slot) {
                 if (slot != 0)
                     throw Error("UnsupportedFeature", "slot", "only slot 0 exists, not " + std::to_string(slot));
                 return self.plan.new_sequence();
             },
             "slot"_a = 0, Unlocked())
        .def("free_sequence", [](BoundPlan& self, int s) { self.plan.free_sequence(s); }, "sequence"_a, Unlocked())
        .def("length", [](const BoundPlan& self, int s) { return self.plan.length(s); }, "sequence"_a, Unlocked())
        .def("truncate", [](BoundPlan& self, int s, std::int64_t n) { self.plan.truncate(s, size(n, "length")); },
             "sequence"_a, "n"_a, Unlocked())
        // No silent copies: the results would be in one of them.
        .def("step", step, "sequences"_a.noconvert(), "counts"_a.noconvert(), "tokens"_a.noconvert(),
             "wanted"_a.noconvert(), "out"_a.noconvert())
        .def("cancel", [](BoundPlan& self) { self.plan.cancel(); })
        .def("stats", stats);
}

}  // namespace

void bind_plan(nb::module_& m) {
    nb::class_<BoundPlan> plan(m, "Plan");
    plan.def("__init__", construct, "isa"_a, "mode"_a, "threads"_a, "max_tokens"_a, "max_outputs"_a, "context"_a,
             "max_sequences"_a, "kv_dtype"_a);
    bind_description(plan);
    bind_operators(plan);
    bind_running(plan);
}

}  // namespace cortiq

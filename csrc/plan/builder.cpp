#include "plan/builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace cortiq {

namespace {

[[noreturn]] void usage(const char* code, const std::string& message) { throw Error("UsageError", code, message); }

void expect(std::size_t found, std::size_t expected, const std::string& what) {
    if (found == expected) return;
    throw Error("ShapeMismatch", "plan", what + " is " + std::to_string(found) + ", must be " + std::to_string(expected));
}

void within(std::size_t value, std::size_t most, const char* what) {
    if (value >= 1 && value <= most) return;
    throw Error("Limit", what, std::string(what) + " must be from 1 to " + std::to_string(most) + ", not " + std::to_string(value));
}

void finite(float value, const char* what) {
    if (!std::isfinite(value)) usage("value", std::string(what) + " must be finite");
}

}  // namespace

PlanBuilder::PlanBuilder(PlanOptions options) {
    within(options.max_tokens, 1 << 20, "max_tokens");
    within(options.max_outputs, options.max_tokens, "max_outputs");
    within(options.context, 1 << 24, "context");
    within(options.max_sequences, 1 << 16, "max_sequences");
    if (options.threads < 0 || options.threads > 1024) usage("threads", "threads must be from 0 to 1024");
    if (options.threads == 0) options.threads = usable_cpus();
    program_.options = options;
    program_.kernels = &kernels(options.isa);
    program_.ops = &ops(options.isa);
}

const MatrixView& PlanBuilder::matrix(int handle, const char* what) const {
    if (handle < 0 || static_cast<std::size_t>(handle) >= program_.tensors.size())
        usage("tensor", std::string(what) + ": no tensor " + std::to_string(handle));
    return program_.tensor(handle);
}

std::size_t PlanBuilder::width(int handle, const char* what) const {
    if (handle < 0 || static_cast<std::size_t>(handle) >= program_.buffers.size())
        usage("buffer", std::string(what) + ": no buffer " + std::to_string(handle));
    return program_.buffer(handle).width;
}

void PlanBuilder::check_vector(int handle, std::size_t length, const char* what) const {
    if (handle < 0 || static_cast<std::size_t>(handle) >= program_.vectors.size())
        usage("vector", std::string(what) + ": no vector " + std::to_string(handle));
    expect(program_.vectors[static_cast<std::size_t>(handle)].size(), length, std::string("length of ") + what);
}

const KvLayer& PlanBuilder::layer(int handle, std::size_t kv_heads, std::size_t head_dim) const {
    if (handle < 0 || static_cast<std::size_t>(handle) >= program_.layers.size())
        usage("kv_layer", "no kv layer " + std::to_string(handle));
    const KvLayer& found = program_.layers[static_cast<std::size_t>(handle)];
    expect(kv_heads, found.kv_heads, "kv_heads");
    expect(head_dim, found.head_dim, "head_dim");
    return found;
}

void PlanBuilder::add(Op op) {
    if (taken_) usage("finished", "the plan is finished");
    if (has_logits_) usage("order", "logits is the last operator");
    program_.list.push_back(std::move(op));
}

int PlanBuilder::tensor(const TensorSpec& spec) {
    within(spec.rows, std::size_t{1} << 31, "rows");
    within(spec.cols, std::size_t{1} << 24, "cols");
    MatrixView view;
    if (spec.dtype < 0 || spec.dtype > 255) usage("dtype", "no dtype " + std::to_string(spec.dtype));
    view.dtype = static_cast<DType>(spec.dtype);
    check_matrix(view.dtype, spec.rows, spec.cols, spec.nbytes);
    if (spec.address == 0 || spec.address > spec.limit || spec.limit - spec.address < spec.nbytes)
        throw Error("Bounds", "tensor", "a tensor does not lie inside its mapping");
    view.data = reinterpret_cast<const std::uint8_t*>(spec.address);
    view.nbytes = spec.nbytes;
    view.rows = spec.rows;
    view.cols = spec.cols;
    view.limit = reinterpret_cast<const std::uint8_t*>(spec.limit);
    program_.tensors.push_back(view);
    return static_cast<int>(program_.tensors.size()) - 1;
}

int PlanBuilder::vector(std::vector<float> values) {
    program_.vectors.push_back(std::move(values));
    return static_cast<int>(program_.vectors.size()) - 1;
}

int PlanBuilder::buffer(std::size_t width) {
    within(width, 1 << 24, "width");
    program_.buffers.push_back(Buffer{.width = width});
    return static_cast<int>(program_.buffers.size()) - 1;
}

int PlanBuilder::kv_layer(std::size_t kv_heads, std::size_t head_dim, std::size_t window) {
    within(kv_heads, 1 << 12, "kv_heads");
    within(head_dim, 1 << 12, "head_dim");
    if (window > program_.options.context) window = 0;  // sees everything there can be
    program_.layers.push_back(KvLayer{.kv_heads = kv_heads, .head_dim = head_dim, .window = window});
    appended_.push_back(false);
    return static_cast<int>(program_.layers.size()) - 1;
}

void PlanBuilder::embed(EmbedOp op) {
    expect(width(op.out, "out"), matrix(op.weight, "weight").cols, "width of out");
    finite(op.scale, "scale");
    if (selected_) usage("order", "embed cannot follow select");
    add(op);
}

void PlanBuilder::rmsnorm(NormOp op) {
    expect(width(op.out, "out"), width(op.inp, "inp"), "width of out");
    check_vector(op.weight, width(op.inp, "inp"), "weight");
    if (!(op.eps >= 0.0f)) usage("value", "eps must not be negative");
    if (op.accumulate && op.inp == op.out) usage("alias", "an accumulating norm cannot work in place");
    add(op);
}

void PlanBuilder::linear(LinearOp op) {
    if (op.segments.empty()) usage("segments", "linear needs a segment");
    for (const Segment& segment : op.segments) {
        const MatrixView& weight = matrix(segment.weight, "weight");
        expect(weight.cols, width(op.inp, "inp"), "columns of weight");
        if (segment.bias != kNone) check_vector(segment.bias, weight.rows, "bias");
        const std::size_t out_width = width(segment.out, "out");
        if (segment.out == op.inp) usage("alias", "linear cannot write to its input");
        if (segment.column > out_width || out_width - segment.column < weight.rows)
            throw Error("ShapeMismatch", "plan", "a segment does not fit into its buffer");
    }
    for (std::size_t i = 0; i < op.segments.size(); i++)
        for (std::size_t j = 0; j < i; j++) {
            const Segment &a = op.segments[i], &b = op.segments[j];
            if (a.out == b.out && a.column < b.column + matrix(b.weight, "weight").rows &&
                b.column < a.column + matrix(a.weight, "weight").rows)
                usage("alias", "two segments overlap");
        }
    add(std::move(op));
}

void PlanBuilder::rope_append(const RopeSpec& spec) {
    layer(spec.kv, spec.kv_heads, spec.head_dim);
    within(spec.heads, 1 << 12, "heads");
    if (spec.heads % spec.kv_heads) throw Error("ShapeMismatch", "plan", "heads must be a multiple of kv_heads");
    expect(width(spec.q, "q"), spec.heads * spec.head_dim, "width of q");
    expect(width(spec.k, "k"), spec.kv_heads * spec.head_dim, "width of k");
    expect(width(spec.v, "v"), spec.kv_heads * spec.head_dim, "width of v");
    if (spec.q == spec.k || spec.q == spec.v || spec.k == spec.v) usage("alias", "q, k and v must be three buffers");
    if (spec.q_norm != kNone) check_vector(spec.q_norm, spec.head_dim, "q_norm");
    if (spec.k_norm != kNone) check_vector(spec.k_norm, spec.head_dim, "k_norm");
    if (!(spec.eps >= 0.0f)) usage("value", "eps must not be negative");
    finite(spec.attention_factor, "attention_factor");
    if (selected_) usage("order", "rope_append cannot follow select");
    int rope = kNone;
    if (spec.inv_freq != kNone) {
        if (spec.inv_freq < 0 || static_cast<std::size_t>(spec.inv_freq) >= program_.vectors.size())
            usage("vector", "inv_freq: no vector " + std::to_string(spec.inv_freq));
        const std::vector<float>& freq = program_.vectors[static_cast<std::size_t>(spec.inv_freq)];
        if (freq.empty() || 2 * freq.size() > spec.head_dim)
            throw Error("ShapeMismatch", "plan", "inv_freq must hold 1 to head_dim / 2 frequencies");
        const auto same = [&](const RopeKey& key) {
            return key.inv_freq == spec.inv_freq && key.attention_factor == spec.attention_factor;
        };
        const auto found = std::find_if(rope_keys_.begin(), rope_keys_.end(), same);
        rope = static_cast<int>(found - rope_keys_.begin());
        if (found == rope_keys_.end()) {
            rope_keys_.push_back({spec.inv_freq, spec.attention_factor});
            program_.ropes.emplace_back(freq, spec.attention_factor, program_.options.context);
        }
    }
    std::vector<bool>::reference appended = appended_[static_cast<std::size_t>(spec.kv)];
    if (appended) usage("kv_layer", "two operators append to the same kv layer");
    add(RopeAppendOp{spec.q, spec.k, spec.v, spec.kv, spec.heads, spec.kv_heads, spec.head_dim, rope, spec.q_norm,
                     spec.k_norm, spec.eps, spec.plus_one});
    appended = true;
}

void PlanBuilder::attention(AttentionOp op) {
    layer(op.layer, op.kv_heads, op.head_dim);
    within(op.heads, 1 << 12, "heads");
    if (op.heads % op.kv_heads) throw Error("ShapeMismatch", "plan", "heads must be a multiple of kv_heads");
    expect(width(op.q, "q"), op.heads * op.head_dim, "width of q");
    expect(width(op.out, "out"), op.heads * op.head_dim, "width of out");
    if (op.q == op.out) usage("alias", "attention cannot write to its input");
    finite(op.scale, "scale");
    finite(op.softcap, "softcap");
    if (selected_) usage("order", "attention cannot follow select");
    if (!appended_[static_cast<std::size_t>(op.layer)]) usage("order", "attention before rope_append of the same kv layer");
    add(op);
}

void PlanBuilder::glu(GluOp op) {
    const MatrixView &gate = matrix(op.gate, "gate"), &up = matrix(op.up, "up");
    expect(gate.cols, width(op.inp, "inp"), "columns of gate");
    expect(up.cols, width(op.inp, "inp"), "columns of up");
    expect(up.rows, gate.rows, "rows of up");
    expect(width(op.out, "out"), gate.rows, "width of out");
    if (op.inp == op.out) usage("alias", "glu cannot write to its input");
    add(op);
}

void PlanBuilder::select() {
    if (selected_) usage("order", "select is there already");
    add(SelectOp{});
    selected_ = true;
}

void PlanBuilder::logits(LogitsOp op) {
    const MatrixView& weight = matrix(op.weight, "weight");
    expect(weight.cols, width(op.inp, "inp"), "columns of weight");
    finite(op.scale, "scale");
    finite(op.softcap, "softcap");
    if (!selected_) usage("order", "logits needs select before it");
    add(op);
    has_logits_ = true;
    program_.vocab = weight.rows;
}

Program PlanBuilder::take() {
    if (taken_) usage("finished", "the plan is finished");
    if (!has_logits_) usage("order", "a plan ends with logits");
    if (!std::holds_alternative<EmbedOp>(program_.list.front())) usage("order", "a plan begins with embed");
    taken_ = true;
    return std::move(program_);
}

}  // namespace cortiq

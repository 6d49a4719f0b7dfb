// The passes between a plan's description and its execution.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "plan/program.h"

namespace cortiq {

namespace {

template <class... F>
struct Overload : F... {
    using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

// Buffers an operator reads, and those it writes.
std::vector<int> reads(const Op& op) {
    return std::visit(Overload{
                          [](const EmbedOp&) { return std::vector<int>{}; },
                          [](const NormOp& o) {
                              return o.accumulate ? std::vector<int>{o.inp, o.out} : std::vector<int>{o.inp};
                          },
                          [](const LinearOp& o) {
                              std::vector<int> all{o.inp};
                              if (o.accumulate)
                                  for (const Segment& s : o.segments) all.push_back(s.out);
                              return all;
                          },
                          [](const RopeAppendOp& o) { return std::vector<int>{o.q, o.k, o.v}; },
                          [](const AttentionOp& o) { return std::vector<int>{o.q}; },
                          [](const GluOp& o) { return std::vector<int>{o.inp}; },
                          [](const SelectOp&) { return std::vector<int>{}; },
                          [](const LogitsOp& o) { return std::vector<int>{o.inp}; },
                          [](const QuantizeOp& o) { return std::vector<int>{o.buffer}; },
                          [](const FoldOp& o) { return std::vector<int>{o.inp}; },
                      },
                      op);
}
std::vector<int> writes(const Op& op) {
    return std::visit(Overload{
                          [](const EmbedOp& o) { return std::vector<int>{o.out}; },
                          [](const NormOp& o) { return std::vector<int>{o.out}; },
                          [](const LinearOp& o) {
                              std::vector<int> all;
                              for (const Segment& s : o.segments) all.push_back(s.out);
                              return all;
                          },
                          [](const RopeAppendOp& o) { return std::vector<int>{o.q, o.k}; },
                          [](const AttentionOp& o) { return std::vector<int>{o.out}; },
                          [](const GluOp& o) { return std::vector<int>{o.out}; },
                          [](const SelectOp&) { return std::vector<int>{}; },
                          [](const LogitsOp&) { return std::vector<int>{}; },
                          [](const QuantizeOp&) { return std::vector<int>{}; },
                          [](const FoldOp& o) {
                              std::vector<int> all;
                              for (const FoldOp::Target& target : o.targets) all.push_back(target.out);
                              return all;
                          },
                      },
                      op);
}

bool contains(const std::vector<int>& list, int value) { return std::find(list.begin(), list.end(), value) != list.end(); }

// The matrices that multiply one input.
struct Products {
    struct One {
        int weight;
        Int8* int8;
    };
    int inp = kNone;
    std::vector<One> all = {};
};
Products products(Op& op) {
    if (auto* linear = std::get_if<LinearOp>(&op)) {
        Products p{linear->inp};
        for (Segment& segment : linear->segments) p.all.push_back({segment.weight, &segment.int8});
        return p;
    }
    if (auto* glu = std::get_if<GluOp>(&op))
        return {glu->inp, {{glu->gate, &glu->gate_int8}, {glu->up, &glu->up_int8}}};
    if (auto* logits = std::get_if<LogitsOp>(&op)) return {logits->inp, {{logits->weight, &logits->int8}}};
    return {};
}

// Marks the products that take int8 activations, and puts a FoldOp in front of those with column factors. The buffers of
// an operator's folds serve the next one of the same width too.
void place_folds(Program& program) {
    std::map<std::pair<std::size_t, std::size_t>, int> made;  // by width, and which of an operator's folds
    std::vector<Op> list;
    for (Op& op : program.list) {
        const Products p = products(op);
        FoldOp fold{p.inp, {}};
        for (const Products::One& one : p.all) {
            const DType dtype = program.tensor(one.weight).dtype;
            one.int8->on = !program.options.exact && program.kernels->takes_int8(dtype);
            if (!one.int8->on || !program.kernels->folds(dtype)) continue;
            const std::size_t width = program.tensor(one.weight).cols;
            const auto [spot, is_new] = made.try_emplace({width, fold.targets.size()}, static_cast<int>(program.buffers.size()));
            if (is_new) program.buffers.push_back(Buffer{.width = width, .int8 = true, .int8_only = true});
            one.int8->fold = spot->second;
            fold.targets.push_back({one.weight, spot->second});
        }
        if (!fold.targets.empty()) list.push_back(std::move(fold));
        list.push_back(std::move(op));
    }
    program.list = std::move(list);
}

// The input whose own int8 form the operator reads, if it does.
std::optional<int> int8_input(Op& op) {
    const Products p = products(op);
    const auto own = [](const Products::One& one) { return one.int8->on && one.int8->fold == kNone; };
    return std::any_of(p.all.begin(), p.all.end(), own) ? std::optional(p.inp) : std::nullopt;
}

// Whether the operator can leave its result in int8 as well, and if so makes it.
bool quantizes(Op& op) {
    if (auto* norm = std::get_if<NormOp>(&op)) return norm->quantize = true;
    if (auto* glu = std::get_if<GluOp>(&op)) return glu->quantize = true;
    if (auto* attention = std::get_if<AttentionOp>(&op))
        return attention->quantize = attention->head_dim % kGroup == 0;
    return false;
}

// Every int8 input is made where it is produced, or by a QuantizeOp in front of its first reader.
void place_quantization(Program& program) {
    std::vector<std::optional<int>> inputs;
    for (Op& op : program.list) {
        inputs.push_back(int8_input(op));
        if (inputs.back()) program.buffers[static_cast<std::size_t>(*inputs.back())].int8 = true;
    }
    std::vector<bool> valid(program.buffers.size());
    std::vector<Op> list;
    for (std::size_t i = 0; i < program.list.size(); i++) {
        Op& op = program.list[i];
        if (inputs[i] && !valid[static_cast<std::size_t>(*inputs[i])]) {
            list.push_back(QuantizeOp{*inputs[i]});
            valid[static_cast<std::size_t>(*inputs[i])] = true;
        }
        for (int out : writes(op))
            valid[static_cast<std::size_t>(out)] = program.buffer(out).int8 && quantizes(op);
        list.push_back(std::move(op));
    }
    program.list = std::move(list);
}

int* norm_prologue(Op& op) {
    if (auto* linear = std::get_if<LinearOp>(&op)) return &linear->prologue;
    if (auto* glu = std::get_if<GluOp>(&op)) return &glu->prologue;
    if (auto* logits = std::get_if<LogitsOp>(&op)) return &logits->prologue;
    return nullptr;
}

// True when whatever reads `buffer` directly follows a norm that writes it: then each thread may hold its own copy.
bool private_to_norms(const std::vector<Op>& list, int buffer) {
    for (std::size_t i = 0; i < list.size(); i++) {
        if (!contains(reads(list[i]), buffer)) continue;
        const auto* norm = i > 0 ? std::get_if<NormOp>(&list[i - 1]) : nullptr;
        if (!norm || norm->out != buffer || norm->accumulate || norm->inp == buffer) return false;
    }
    return true;
}

void join_neighbours(Program& program) {
    for (std::size_t i = 1; i < program.list.size(); i++) {
        Op& op = program.list[i];
        const int before = static_cast<int>(i) - 1;
        if (auto* norm = std::get_if<NormOp>(&program.list[i - 1])) {
            int* prologue = norm_prologue(op);
            // Threads that still normalize must not meet results of threads that are ahead.
            const bool apart = !contains(writes(op), norm->inp);
            if (prologue && apart && contains(reads(op), norm->out) && private_to_norms(program.list, norm->out)) {
                *prologue = before;
                norm->fused = true;
            }
        }
        auto* rope = std::get_if<RopeAppendOp>(&program.list[i - 1]);
        auto* attention = std::get_if<AttentionOp>(&op);
        if (rope && attention && rope->layer == attention->layer && rope->q == attention->q &&
            rope->heads == attention->heads && rope->k != attention->out && rope->v != attention->out) {
            rope->partner = static_cast<int>(i);
            attention->prologue = before;
        }
    }
}

// select moves the wanted rows of every buffer that is read behind it before it is written anew.
void find_live(Program& program) {
    for (std::size_t i = 0; i < program.list.size(); i++) {
        auto* select = std::get_if<SelectOp>(&program.list[i]);
        if (!select) continue;
        std::vector<bool> written(program.buffers.size());
        for (std::size_t j = i + 1; j < program.list.size(); j++) {
            for (int in : reads(program.list[j]))
                if (!written[static_cast<std::size_t>(in)] && !contains(select->buffers, in)) select->buffers.push_back(in);
            // A linear operator may write a part of its buffer only.
            if (!std::holds_alternative<LinearOp>(program.list[j]))
                for (int out : writes(program.list[j])) written[static_cast<std::size_t>(out)] = true;
        }
    }
}

}  // namespace

void compile(Program& program) {
    place_folds(program);
    place_quantization(program);
    join_neighbours(program);
    find_live(program);
    for (Buffer& buffer : program.buffers) {
        buffer.stride = (buffer.width + 15) / 16 * 16;
        if (buffer.int8) buffer.act_nbytes = program.kernels->act_nbytes(buffer.width);
    }
}

std::size_t weight_nbytes(const Program& program) {
    std::size_t total = 0;
    auto count = [&](int weight) { total += program.tensor(weight).nbytes; };
    for (const Op& op : program.list) {
        if (const auto* linear = std::get_if<LinearOp>(&op))
            for (const Segment& segment : linear->segments) count(segment.weight);
        if (const auto* glu = std::get_if<GluOp>(&op)) count(glu->gate), count(glu->up);
        if (const auto* logits = std::get_if<LogitsOp>(&op)) count(logits->weight);
        if (const auto* embed = std::get_if<EmbedOp>(&op))
            total += program.tensor(embed->weight).nbytes / program.tensor(embed->weight).rows;
    }
    return total;
}

}  // namespace cortiq

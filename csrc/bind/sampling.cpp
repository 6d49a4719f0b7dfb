// The sampler.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.h"
#include "core/error.h"
#include "ops/sampling.h"

namespace nb = nanobind;

namespace cortiq {

namespace {

using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = std::vector<std::pair<std::int32_t, float>>;


nb::tuple sample(Sampler& sampler, const Logits& logits) {
    if (logits.shape(0) != sampler.vocab_size())
        throw Error("ShapeMismatch", "logits",
                    std::to_string(logits.shape(0)) + " logits for a vocabulary of " + std::to_string(sampler.vocab_size()));
    const Sampled sampled = sampler.sample(logits.data());
    nb::list top;
    for (std::size_t i = 0; i < sampled.top_count; ++i)
        top.append(nb::make_tuple(sampled.top[i].id, sampled.top[i].value));
    return nb::make_tuple(sampled.id, sampled.logprob, top);
}

}  // namespace

void bind_sampling(nb::module_& m) {
    nb::class_<Sampler>(m, "Sampler")
        .def(
            "__init__",
            [](Sampler* self, std::size_t vocab_size, float temperature, std::int32_t top_k, float top_p, float min_p,
               float repetition_penalty, float presence_penalty, float frequency_penalty, std::uint64_t seed,
               std::int32_t logprobs, const Ids& logit_bias, const std::string& isa) {
                const SamplingParams params{temperature,      top_k,             top_p, min_p,   repetition_penalty,
                                            presence_penalty, frequency_penalty, seed,  logprobs};
                std::vector<Candidate> bias;
                for (const auto& [id, value] : logit_bias) bias.push_back({value, id});
                new (self) Sampler(vocab_size, params, bias, isa.empty() ? best_isa() : isa_from_name(isa));
            },
            nb::arg("vocab_size"), nb::kw_only(), nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"),
            nb::arg("min_p"), nb::arg("repetition_penalty"), nb::arg("presence_penalty"), nb::arg("frequency_penalty"),
            nb::arg("seed"), nb::arg("logprobs"), nb::arg("logit_bias") = Ids{}, nb::arg("isa") = "")
        .def("accept", &Sampler::accept, nb::arg("id"), nb::arg("generated") = true)
        .def_prop_rw("position", &Sampler::position, &Sampler::set_position)
        .def("sample", &sample, nb::arg("logits"));
}

}  // namespace cortiq

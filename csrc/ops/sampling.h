// The sampler: the logits of one position to one token.
//
// In this order, which is Hugging Face's:
//   1. logit bias is added; the repetition penalty divides positive and multiplies negative logits of every accepted
//      token, prompt included; the presence penalty is subtracted from generated tokens, the frequency penalty once
//      per time a token was generated
//   2. temperature; 0 takes the highest logit, of equal ones the lowest id, and ends here
//   3. top-k: the k highest, of equal ones the lowest ids
//   4. top-p over what is left, renormalized: from the highest, up to and including the one whose sum reaches p
//   5. min-p: what is below min_p times the highest probability goes; the highest always stays
//   6. one uniform number, a function of seed and position alone, picks by cumulated probability, ids ascending
// Log-probabilities are those of the logits as given, before 1. Nothing is allocated after construction.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cpu.h"

namespace cortiq {

struct SamplingParams {
    float temperature = 1.0f;
    std::int32_t top_k = 0;  // 0: off
    float top_p = 1.0f;
    float min_p = 0.0f;
    float repetition_penalty = 1.0f;
    float presence_penalty = 0.0f;
    float frequency_penalty = 0.0f;
    std::uint64_t seed = 0;
    std::int32_t logprobs = 0;  // likeliest tokens reported with each token; 0 computes no log-probability at all
};

struct Candidate {
    float value;
    std::int32_t id;
};

struct Sampled {
    std::int32_t id;
    float logprob;         // NaN when none was asked for
    const Candidate* top;  // value = log-probability, likeliest first; valid until the next call
    std::size_t top_count;
};

struct SamplingScan;

class Sampler {
   public:
    // `bias`: what to add to the logit of an id. Throws UsageError for a value out of range.
    Sampler(std::size_t vocab_size, const SamplingParams& params, const std::vector<Candidate>& bias, Isa isa);

    // A token became part of the sequence. Throws UsageError for an id outside the vocabulary.
    void accept(std::int32_t id, bool generated);
    // Number of tokens accepted so far. Setting it does not undo penalties.
    std::uint64_t position() const { return position_; }
    void set_position(std::uint64_t position) { position_ = position; }

    // Picks a token; does not accept it. Throws NonFinite when a logit is NaN or +inf or none is finite.
    Sampled sample(const float* logits);

    std::size_t vocab_size() const { return vocab_; }

   private:
    const float* penalized(const float* logits);
    float scan_maxima(const float* values);
    void take_top(const float* values, std::size_t k);
    std::int32_t greedy(const float* values, float top) const;
    std::int32_t pick(const float* values, float top);
    void weigh(float top, float scale);
    bool cut(double wanted);
    Candidate boundary(double wanted);
    std::int32_t draw_above(const Candidate& last);
    std::int32_t draw_sorted();
    std::int32_t draw() const;
    std::int32_t draw_from_all(double total) const;
    double uniform() const;

    const std::size_t vocab_;
    const SamplingParams params_;
    const SamplingScan& scan_;
    const bool has_penalty_, changes_logits_;
    std::uint64_t position_ = 0;
    std::vector<std::int32_t> touched_;    // ids whose logit may change, each once
    std::vector<std::uint8_t> state_;      // per id: 1 = in touched_, 2 = accepted
    std::vector<std::int32_t> generated_;  // per id: times generated
    std::vector<float> bias_;              // per id
    std::vector<float> changed_;           // the logits after step 1
    std::vector<float> weights_;           // exp(logit - highest), when all are needed
    std::vector<float> maxima_, scratch_;  // per block of the scan
    std::vector<Candidate> candidates_;    // capacity for the whole vocabulary
    std::size_t count_ = 0;                // of candidates_ in use
    std::vector<Candidate> reported_;
    std::vector<double> buckets_;          // weight per bucket of weights of similar size
};

}  // namespace cortiq

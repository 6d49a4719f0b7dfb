#include "ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "core/error.h"
#include "ops/sampling_scan_table.h"

namespace cortiq {

namespace {

// Weights in (0, 1] by their upper 16 bits, which order them.
constexpr std::size_t kBuckets = 0x3F80 + 1;
// A temperature below this is greedy: nothing but the highest logit would have a weight.
constexpr float kGreedy = 1e-5f;
// A top-p set is looked for among this many likeliest tokens before the whole vocabulary is bucketed.
constexpr std::size_t kLikely[] = {64, 512};

bool likelier(const Candidate& a, const Candidate& b) { return a.value > b.value || (a.value == b.value && a.id < b.id); }

const SamplingScan& scan_for(Isa isa) {
#if defined(__x86_64__)
    if (isa != Isa::scalar) return sampling_scan_avx2();
#endif
    static_cast<void>(isa);
    return sampling_scan_scalar();
}

std::size_t bucket_of(float weight) {
    std::uint32_t bits;
    std::memcpy(&bits, &weight, 4);
    return bits >> 16;
}

// A bijection of 64 bits in which every input bit reaches every output bit.
std::uint64_t scramble(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

void require(bool holds, const char* name, const std::string& range) {
    if (!holds) throw Error("UsageError", "sampling", std::string(name) + " must be " + range);
}

void check(std::size_t vocab, const SamplingParams& p) {
    require(vocab > 0 && vocab < std::size_t{1} << 31, "vocab_size", "in [1, 2^31)");
    require(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", "a number >= 0");
    require(p.top_k >= 0, "top_k", ">= 0");
    require(p.top_p > 0 && p.top_p <= 1, "top_p", "in (0, 1]");
    require(p.min_p >= 0 && p.min_p <= 1, "min_p", "in [0, 1]");
    require(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty), "repetition_penalty", "a number > 0");
    require(std::isfinite(p.presence_penalty), "presence_penalty", "finite");
    require(std::isfinite(p.frequency_penalty), "frequency_penalty", "finite");
    require(p.logprobs >= 0, "logprobs", ">= 0");
}

}  // namespace

Sampler::Sampler(std::size_t vocab_size, const SamplingParams& params, const std::vector<Candidate>& bias, Isa isa)
    : vocab_(vocab_size),
      params_(params),
      scan_(scan_for(isa)),
      has_penalty_(params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0),
      changes_logits_(has_penalty_ || !bias.empty()) {
    check(vocab_, params_);
    const std::size_t blocks = (vocab_ + kScanBlock - 1) / kScanBlock;
    maxima_.resize(blocks);
    scratch_.resize(blocks);
    candidates_.resize(vocab_);
    reported_.resize(std::min<std::size_t>(params_.logprobs, vocab_));
    if (params_.temperature > 0 && (params_.top_k == 0 || static_cast<std::size_t>(params_.top_k) >= vocab_)) {
        weights_.resize(vocab_);
        if (params_.top_p < 1) buckets_.resize(kBuckets);
    }
    if (!changes_logits_) return;
    changed_.resize(vocab_);
    bias_.resize(vocab_);
    state_.resize(vocab_);
    generated_.resize(vocab_);
    touched_.reserve(vocab_);
    for (const Candidate& entry : bias) {
        require(entry.id >= 0 && static_cast<std::size_t>(entry.id) < vocab_, "a biased token", "in the vocabulary");
        require(!std::isnan(entry.value) && entry.value < INFINITY, "a logit bias", "a number or -inf");
        if (state_[entry.id] == 0) touched_.push_back(entry.id);
        state_[entry.id] = 1;
        bias_[entry.id] += entry.value;
    }
}

void Sampler::accept(std::int32_t id, bool generated) {
    require(id >= 0 && static_cast<std::size_t>(id) < vocab_, "a token", "in the vocabulary");
    ++position_;
    if (!has_penalty_) return;
    if (state_[id] == 0) touched_.push_back(id);
    state_[id] = 2;
    if (generated) ++generated_[id];
}

const float* Sampler::penalized(const float* logits) {
    if (touched_.empty()) return logits;
    std::memcpy(changed_.data(), logits, vocab_ * sizeof(float));
    for (const std::int32_t id : touched_) {
        float value = logits[id] + bias_[id];
        if (state_[id] == 2)
            value = value > 0 ? value / params_.repetition_penalty : value * params_.repetition_penalty;
        if (generated_[id] > 0)
            value -= params_.presence_penalty + params_.frequency_penalty * static_cast<float>(generated_[id]);
        changed_[id] = value;
    }
    return changed_.data();
}

float Sampler::scan_maxima(const float* values) {
    const bool numbers = scan_.block_maxima(values, vocab_, maxima_.data());
    if (!numbers) throw Error("NonFinite", "logits", "a logit is NaN or infinite");
    const float top = *std::max_element(maxima_.begin(), maxima_.end());
    if (top == -INFINITY) throw Error("NonFinite", "logits", "no logit is finite");
    return top;
}

// The k highest values, highest first, into candidates_. maxima_ must be those of `values`.
void Sampler::take_top(const float* values, std::size_t k) {
    k = std::min(k, vocab_);
    // At least k values reach the k-th highest block maximum, so nothing below it is among the k highest.
    float floor = -INFINITY;
    if (k < maxima_.size()) {
        std::copy(maxima_.begin(), maxima_.end(), scratch_.begin());
        std::nth_element(scratch_.begin(), scratch_.begin() + (k - 1), scratch_.end(), std::greater<float>());
        floor = scratch_[k - 1];
    }
    count_ = 0;
    for (std::size_t block = 0; block < maxima_.size(); ++block) {
        if (maxima_[block] < floor) continue;
        const std::size_t end = std::min(vocab_, (block + 1) * kScanBlock);
        for (std::size_t i = block * kScanBlock; i < end; ++i)
            if (values[i] >= floor) candidates_[count_++] = {values[i], static_cast<std::int32_t>(i)};
    }
    const auto first = candidates_.begin();
    if (count_ > k) std::nth_element(first, first + k, first + count_, likelier);
    count_ = k;
    std::sort(first, first + count_, likelier);
}

std::int32_t Sampler::greedy(const float* values, float top) const {
    const std::size_t block = std::find(maxima_.begin(), maxima_.end(), top) - maxima_.begin();
    return static_cast<std::int32_t>(std::find(values + block * kScanBlock, values + vocab_, top) - values);
}

double Sampler::uniform() const {
    const std::uint64_t key = scramble(params_.seed + 0x9E3779B97F4A7C15ull);
    return static_cast<double>(scramble(key + (position_ + 1) * 0x9E3779B97F4A7C15ull) >> 11) * 0x1p-53;
}

// Logits of the candidates in use to weights relative to the highest logit.
void Sampler::weigh(float top, float scale) {
    for (std::size_t i = 0; i < count_; ++i)
        candidates_[i].value = scan_.exp_negative((candidates_[i].value - top) * scale);
}

// Cuts sorted candidates to the first whose weights reach `wanted`; false when all together do not.
bool Sampler::cut(double wanted) {
    double sum = 0;
    for (std::size_t i = 0; i < count_; ++i) {
        sum += static_cast<double>(candidates_[i].value);
        if (sum < wanted) continue;
        count_ = i + 1;
        return true;
    }
    return false;
}

std::int32_t Sampler::pick(const float* values, float top) {
    const float scale = 1.0f / params_.temperature;
    const std::size_t k = params_.top_k;
    if (k > 0 && k < vocab_) {
        take_top(values, k);
        weigh(top, scale);
        double total = 0;
        for (std::size_t i = 0; i < count_; ++i) total += static_cast<double>(candidates_[i].value);
        if (params_.top_p < 1) cut(static_cast<double>(params_.top_p) * total);
        return draw_sorted();
    }
    if (params_.top_p < 1) {
        const double wanted = params_.top_p * scan_.exp_sum(values, vocab_, top, scale, nullptr, nullptr);
        for (const std::size_t likely : kLikely) {
            take_top(values, likely);
            weigh(top, scale);
            if (cut(wanted)) return draw_sorted();
        }
        scan_.exp_sum(values, vocab_, top, scale, weights_.data(), nullptr);
        const Candidate last = boundary(wanted);
        return draw_above(last);
    }
    const double total = scan_.exp_sum(values, vocab_, top, scale, weights_.data(), scratch_.data());
    return params_.min_p > 0 ? draw_above({0, std::numeric_limits<std::int32_t>::max()}) : draw_from_all(total);
}

// The last member of the top-p set of weights_, found without sorting them: buckets of similar weight are added up
// from the highest, and only the one in which the sum reaches `wanted` is sorted.
Candidate Sampler::boundary(double wanted) {
    std::fill(buckets_.begin(), buckets_.end(), 0.0);
    for (const float weight : weights_) buckets_[bucket_of(weight)] += static_cast<double>(weight);
    double sum = 0;
    std::size_t bucket = kBuckets - 1;
    while (bucket > 0 && sum + buckets_[bucket] < wanted) sum += buckets_[bucket--];
    count_ = 0;
    for (std::size_t i = 0; i < vocab_; ++i)
        if (bucket_of(weights_[i]) == bucket) candidates_[count_++] = {weights_[i], static_cast<std::int32_t>(i)};
    // Sums of floats and of doubles differ in the last bits: all of them may stay below what is wanted.
    if (count_ == 0) return {0, std::numeric_limits<std::int32_t>::max()};
    std::sort(candidates_.begin(), candidates_.begin() + count_, likelier);
    cut(wanted - sum);
    return candidates_[count_ - 1];
}

// Draws from the members of weights_ that do not come after `last`.
std::int32_t Sampler::draw_above(const Candidate& last) {
    count_ = 0;
    for (std::size_t i = 0; i < vocab_; ++i) {
        const Candidate entry{weights_[i], static_cast<std::int32_t>(i)};
        if (entry.value >= params_.min_p && !likelier(last, entry)) candidates_[count_++] = entry;
    }
    return draw();
}

// Draws from candidates sorted by likelihood: the likeliest has weight 1 and always passes min-p.
std::int32_t Sampler::draw_sorted() {
    while (candidates_[count_ - 1].value < params_.min_p) --count_;
    std::sort(candidates_.begin(), candidates_.begin() + count_,
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
    return draw();
}

// Draws from candidates sorted by id.
std::int32_t Sampler::draw() const {
    double total = 0;
    for (std::size_t i = 0; i < count_; ++i) total += static_cast<double>(candidates_[i].value);
    const double target = uniform() * total;
    double sum = 0;
    std::int32_t picked = candidates_[0].id;
    for (std::size_t i = 0; i < count_ && sum <= target; ++i) {
        sum += static_cast<double>(candidates_[i].value);
        if (candidates_[i].value > 0) picked = candidates_[i].id;
    }
    return picked;
}

// Draws from all of weights_, with one sum per block in scratch_.
std::int32_t Sampler::draw_from_all(double total) const {
    const double target = uniform() * total;
    double before = 0, sum = 0;
    std::size_t chosen = 0;
    for (std::size_t block = 0; block < scratch_.size() && sum <= target; ++block) {
        if (scratch_[block] > 0) {
            chosen = block;
            before = sum;
        }
        sum += static_cast<double>(scratch_[block]);
    }
    const std::size_t end = std::min(vocab_, (chosen + 1) * kScanBlock);
    std::int32_t picked = 0;
    sum = before;
    for (std::size_t i = chosen * kScanBlock; i < end && (sum <= target || i == chosen * kScanBlock); ++i) {
        sum += static_cast<double>(weights_[i]);
        if (weights_[i] > 0) picked = static_cast<std::int32_t>(i);
    }
    return picked;
}

Sampled Sampler::sample(const float* logits) {
    float top = scan_maxima(logits);
    double log_total = 0;
    if (params_.logprobs > 0) {
        log_total = static_cast<double>(top) + std::log(scan_.exp_sum(logits, vocab_, top, 1.0f, nullptr, nullptr));
        take_top(logits, reported_.size());
        for (std::size_t i = 0; i < count_; ++i)
            reported_[i] = {static_cast<float>(candidates_[i].value - log_total), candidates_[i].id};
    }
    const float* values = penalized(logits);
    if (values != logits) top = scan_maxima(values);
    const std::int32_t id = params_.temperature < kGreedy ? greedy(values, top) : pick(values, top);
    const double logprob = params_.logprobs > 0 ? logits[id] - log_total : std::numeric_limits<double>::quiet_NaN();
    return {id, static_cast<float>(logprob), reported_.data(), reported_.size()};
}

}  // namespace cortiq

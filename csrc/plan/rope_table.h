// Cosines and sines of one set of inverse frequencies, row by position, computed as far as they are needed.
#pragma once
#include <cstddef>
#include <vector>

#include "plan/memory.h"

namespace cortiq {

class RopeTable {
public:
    // The angle of pair i at position p is f32(p) * inv_freq[i] in f32; cosine and sine are those of that angle,
    // rounded to f32 and multiplied by attention_factor.
    RopeTable(std::vector<float> inv_freq, float attention_factor, std::size_t context);

    std::size_t half() const { return inv_freq_.size(); }
    // Computes rows [0, positions) that are missing. Not thread safe.
    void ensure(std::size_t positions);
    const float* cosine(std::size_t position) const { return rows() + position * 2 * half(); }
    const float* sine(std::size_t position) const { return cosine(position) + half(); }

private:
    float* rows() const { return reinterpret_cast<float*>(memory_.data()); }

    std::vector<float> inv_freq_;
    float attention_factor_;
    std::size_t context_;
    std::size_t ready_ = 0;
    Region memory_;
};

}  // namespace cortiq

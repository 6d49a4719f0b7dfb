#include "plan/rope_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cortiq {

namespace {
constexpr std::size_t kStride = 256;  // rows computed at a time
}

RopeTable::RopeTable(std::vector<float> inv_freq, float attention_factor, std::size_t context)
    : inv_freq_(std::move(inv_freq)),
      attention_factor_(attention_factor),
      context_(context),
      memory_(checked_mul(context, 2 * inv_freq_.size() * sizeof(float)), "rope_table") {}

void RopeTable::ensure(std::size_t positions) {
    if (positions <= ready_) return;
    const std::size_t end = std::min(context_, (positions + kStride - 1) / kStride * kStride);
    for (; ready_ < end; ready_++) {
        float* cosine = rows() + ready_ * 2 * half();
        for (std::size_t i = 0; i < half(); i++) {
            const double angle = static_cast<double>(static_cast<float>(ready_) * inv_freq_[i]);
            cosine[i] = static_cast<float>(std::cos(angle)) * attention_factor_;
            cosine[half() + i] = static_cast<float>(std::sin(angle)) * attention_factor_;
        }
    }
}

}  // namespace cortiq

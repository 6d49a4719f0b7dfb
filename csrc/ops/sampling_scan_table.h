// The sampler's loops over a whole vocabulary, for every instruction set, behind function pointers.
#pragma once
#include <cstddef>

namespace cortiq {

constexpr std::size_t kScanBlock = 64;

struct SamplingScan {
    // Maximum of every block of 64 values (the last one may be shorter). Returns false when a value is NaN or +inf.
    bool (*block_maxima)(const float* values, std::size_t n, float* maxima);
    // out[i] = exp((values[i] - top) * scale), where top is the maximum; sums holds one sum per block. Both may be
    // null. Returns the sum of the sums.
    double (*exp_sum)(const float* values, std::size_t n, float top, float scale, float* out, float* sums);
    float (*exp_negative)(float x);
};

const SamplingScan& sampling_scan_scalar();
const SamplingScan& sampling_scan_avx2();  // exists on x86-64 only

}  // namespace cortiq

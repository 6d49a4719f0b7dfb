// The widest vector of an instruction set whose widest one has eight lanes (wide_avx512.h has sixteen).
#pragma once
#include <cstddef>
#include <cstdint>

namespace cortiq::CORTIQ_OPS_NS {

using FW = F8;
constexpr std::size_t kWide = 8;

CORTIQ_INLINE FW load_wide(const float* p) { return load(p); }
CORTIQ_INLINE FW load_wide(const std::uint16_t* p) { return load_half(p); }
CORTIQ_INLINE FW splat_wide(float x) { return splat(x); }

}  // namespace cortiq::CORTIQ_OPS_NS

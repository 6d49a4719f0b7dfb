// The widest vector of an instruction set whose widest one has eight lanes (wide_avx512.h has sixteen).
#pragma once
#include <cstddef>
#include <cstdint>

namespace cortiq::CORTIQ_OPS_NS {

using FW = F8;
constexpr std::size_t kWide = 8;

template <class V>
CORTIQ_INLINE V load(const float* p) {
    return load(p);
}
template <class V>
CORTIQ_INLINE V load(const std::uint16_t* p) {
    return load_half(p);
}
template <class V>
CORTIQ_INLINE V splat(float x) {
    return splat(x);
}
CORTIQ_INLINE void in_eights(const FW (&wide)[4], F8 (&eights)[4]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) eights[i] = wide[i];
}

}  // namespace cortiq::CORTIQ_OPS_NS

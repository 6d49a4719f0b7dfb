// Tensor dtypes of CMF v2 by their directory id (SPEC 3.1).
#pragma once
#include <cstddef>
#include <cstdint>

namespace cortiq {

enum class DType : std::uint8_t {
    f32 = 0,
    f16 = 1,
    bf16 = 2,
    q8_row = 3,
    q4_block = 4,
    u8 = 6,
    q8_2f = 9,
    q4_tiled = 11,
    q1 = 12,
    q1s = 13,
    q1t = 14,
};

inline constexpr std::size_t kGroup = 32;  // weights, and activations, that share one scale

}  // namespace cortiq

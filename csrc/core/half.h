// Conversions between f32 and the 16-bit floats, in integer arithmetic: the same on every instruction set, and simple
// enough for the compiler to vectorize. Internal linkage on purpose: every translation unit keeps its own copy.
#pragma once
#include <cstdint>
#include <cstring>

namespace cortiq {

[[maybe_unused]] static inline std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

[[maybe_unused]] static inline float float_of(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline constexpr float kF16Tiny = 0x1p-14f;      // smallest normal half
inline constexpr float kF16Step = 0x1p-24f;      // smallest half, and the distance of halves below kF16Tiny
inline constexpr float kF16Max = 65504.0f;
inline constexpr float kF16Overflow = 65520.0f;  // this and beyond rounds to infinity

// `yes` where the condition holds, else `no`; without control flow, which would keep loops from being vectorized.
[[maybe_unused]] static inline std::uint32_t choose(bool condition, std::uint32_t yes, std::uint32_t no) {
    const std::uint32_t mask = 0u - std::uint32_t(condition);
    return (yes & mask) | (no & ~mask);
}

// Exact. NaN keeps its bits.
[[maybe_unused]] static inline float f32_from_f16(std::uint16_t half) {
    const std::uint32_t sign = std::uint32_t(half & 0x8000) << 16, rest = std::uint32_t(half & 0x7fff) << 13;
    const std::uint32_t rebias = 112u << 23;
    const std::uint32_t special = choose(rest >= (31u << 23), rebias, 0);               // infinity and NaN
    const std::uint32_t subnormal = bits_of(float_of(rest + (113u << 23)) - kF16Tiny);  // 1.m * 2^-14 - 2^-14
    return float_of(sign | choose(rest < (1u << 23), subnormal, rest + rebias + special));
}

// Steps of 2^-24 in a magnitude given by its bits; one above kF16Tiny (0x38800000) is taken as kF16Tiny.
[[maybe_unused]] static inline float f16_steps(std::uint32_t magnitude) {
    const std::int32_t bits = std::int32_t(magnitude), tiny = 0x38800000;
    return float_of(std::uint32_t(bits < tiny ? bits : tiny)) * 0x1p24f;
}

// Bits of a value that is a half already.
[[maybe_unused]] static inline std::uint16_t f16_exact(float value) {
    const std::uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
    const std::uint32_t subnormal = std::uint32_t(std::int32_t(f16_steps(magnitude)));
    const std::uint32_t normal = (magnitude - (112u << 23)) >> 13;
    return std::uint16_t((bits >> 16 & 0x8000) | choose(magnitude < 0x38800000, subnormal, normal));
}

// Bits of the nearest half of a finite value below kF16Overflow: ties to even, away from zero below kF16Tiny.
[[maybe_unused]] static inline std::uint16_t f16_from_f32(float value) {
    const std::uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const float steps = f16_steps(magnitude);
    const std::int32_t whole = std::int32_t(steps);
    const std::uint32_t subnormal = std::uint32_t(whole) + std::uint32_t(steps - float(whole) >= 0.5f);
    return std::uint16_t((bits >> 16 & 0x8000) | choose(magnitude < 0x38800000, subnormal, normal));
}

[[maybe_unused]] static inline float f32_from_bf16(std::uint16_t bits) { return float_of(std::uint32_t(bits) << 16); }

// Bits of the nearest bf16 of a finite value, ties to even. The largest values become infinite.
[[maybe_unused]] static inline std::uint16_t bf16_from_f32(float value) {
    const std::uint32_t bits = bits_of(value);
    return std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace cortiq

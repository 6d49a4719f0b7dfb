// f16 and bf16 (SPEC 3.2): value loops the compiler vectorizes. Include inside a translation unit of one instruction
// set, after CORTIQ_CODEC names its namespace.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/half.h"

namespace cortiq::CORTIQ_CODEC {

static inline std::uint16_t load_u16(const std::uint8_t* p) {
    std::uint16_t value;
    std::memcpy(&value, p, 2);
    return value;
}

static inline void store_u16(std::uint8_t* p, std::uint16_t value) { std::memcpy(p, &value, 2); }

static void widen_f16(const std::uint8_t* halves, std::size_t n, float* out) {
    for (std::size_t i = 0; i < n; i++) out[i] = f32_from_f16(load_u16(halves + 2 * i));
}

static void widen_bf16(const std::uint8_t* halves, std::size_t n, float* out) {
    for (std::size_t i = 0; i < n; i++) out[i] = f32_from_bf16(load_u16(halves + 2 * i));
}

static std::uint32_t absmax_bits(const float* x, std::size_t n) {
    std::int32_t most = 0;
    for (std::size_t i = 0; i < n; i++) {
        const std::int32_t magnitude = std::int32_t(bits_of(x[i]) & 0x7fffffff);
        most = magnitude > most ? magnitude : most;
    }
    return std::uint32_t(most);
}

static void narrow_f16(const float* x, std::size_t n, std::uint8_t* out) {
    for (std::size_t i = 0; i < n; i++) store_u16(out + 2 * i, f16_from_f32(x[i]));
}

static void narrow_bf16(const float* x, std::size_t n, std::uint8_t* out) {
    for (std::size_t i = 0; i < n; i++) store_u16(out + 2 * i, bf16_from_f32(x[i]));
}

}  // namespace cortiq::CORTIQ_CODEC

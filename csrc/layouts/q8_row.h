// q8_row (SPEC 3.2): planes [int8 : cols] and [f16 scale] per row, w = q * scale,
// scale = max(f16(absmax / 127), 2^-14), q = clamp(rint(w / scale), -128, 127).
#pragma once
#include "layouts/floats.h"

namespace cortiq::CORTIQ_CODEC {

// Adding and subtracting 1.5 * 2^23 rounds |x| < 2^22 to the nearest integer, ties to even.
static inline float nearest_integer(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

static void q8_quantize(const float* x, std::size_t n, float scale, std::uint8_t* out) {
    for (std::size_t i = 0; i < n; i++) {
        float q = x[i] / scale;
        q = q > -128.0f ? q : -128.0f;
        q = q < 127.0f ? q : 127.0f;
        out[i] = std::uint8_t(std::int32_t(nearest_integer(q)));
    }
}

static void q8_decode(const std::uint8_t* quants, std::size_t n, float scale, float* out) {
    for (std::size_t i = 0; i < n; i++) out[i] = float(std::int8_t(quants[i])) * scale;
}

}  // namespace cortiq::CORTIQ_CODEC

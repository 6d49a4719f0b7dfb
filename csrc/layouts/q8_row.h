// q8_row (SPEC 3.2): planes [int8 : cols] and [f16 scale] per row, w = q * scale,
// scale = max(f16(absmax / 127), 2^-14), q = clamp(rint(w / scale), -128, 127).
#pragma once
#include "layouts/floats.h"

namespace cortiq::CORTIQ_CODEC {

// The scale is at least absmax / 127 less half a unit in the last place of a half, so |x / scale| < 127.5 and nothing
// needs clamping. Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
static void q8_quantize(const float* x, std::size_t n, float scale, std::uint8_t* out) {
    for (std::size_t i = 0; i < n; i++) out[i] = std::uint8_t(bits_of(x[i] / scale + 0x1.8p23f));
}

static void q8_decode(const std::uint8_t* quants, std::size_t n, float scale, float* out) {
    for (std::size_t i = 0; i < n; i++) out[i] = float(std::int8_t(quants[i])) * scale;
}

}  // namespace cortiq::CORTIQ_CODEC

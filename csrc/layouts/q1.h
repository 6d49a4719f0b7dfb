// q1 (SPEC 3.2): per group of 32 a tile [f16 scale][4 bytes of signs], w = scale or -scale,
// scale = max(f16(mean |w|), 2^-14). The mean is the f32 sum in order, divided. The encoder serves q1s too: weights of
// magnitude `threshold` and more are left out of the mean and of the carry.
#pragma once
#include <cmath>

#include "core/view.h"
#include "layouts/floats.h"

namespace cortiq::CORTIQ_CODEC {

static constexpr std::size_t kQ1Tile = 6;

// sum / count as an f16 scale: at least 2^-14, and finite.
static inline float mean_scale(float sum, float count) {
    const float mean = sum / count;
    const float rounded = f32_from_f16(f16_from_f32(mean < kF16Max ? mean : kF16Max));
    return rounded > kF16Tiny ? rounded : kF16Tiny;
}

// One row. `diffuse`: v = w + carry, bit = v >= 0, carry = v - (bit ? scale : -scale); else bit = w >= 0.
static void q1_encode(const float* x, std::size_t groups, float threshold, bool diffuse, std::uint8_t* tiles) {
    float carry = 0;
    for (std::size_t g = 0; g < groups; g++, x += kGroup, tiles += kQ1Tile) {
        float sum = 0;
        int count = 0;
        for (std::size_t i = 0; i < kGroup; i++) {
            const float magnitude = std::fabs(x[i]);
            const bool apart = magnitude >= threshold;
            sum += apart ? 0.0f : magnitude;
            count += !apart;
        }
        const float scale = mean_scale(sum, float(count > 1 ? count : 1));
        std::uint32_t signs = 0;
        for (std::size_t i = 0; i < kGroup; i++) {
            const bool carries = diffuse && !(std::fabs(x[i]) >= threshold);
            const float wanted = carries ? x[i] + carry : x[i];
            const bool sign = wanted >= 0;
            if (carries) carry = wanted - (sign ? scale : -scale);
            signs |= std::uint32_t(sign) << i;
        }
        store_u16(tiles, f16_exact(scale));
        std::memcpy(tiles + 2, &signs, 4);
    }
}

// The tiles of row `row`, wherever outliers are.
static void q1_decode(const MatrixView& w, std::size_t row, float* out) {
    const std::size_t groups = w.cols / kGroup;
    const std::uint8_t* tile = w.data + row * groups * kQ1Tile;
    for (std::size_t g = 0; g < groups; g++, tile += kQ1Tile, out += kGroup) {
        const std::uint32_t scale = bits_of(f32_from_f16(load_u16(tile)));
        std::uint32_t signs;
        std::memcpy(&signs, tile + 2, 4);
        for (std::size_t i = 0; i < kGroup; i++) out[i] = float_of(scale ^ (~signs >> i & 1) << 31);
    }
}

}  // namespace cortiq::CORTIQ_CODEC

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

// scale or -scale, without control flow: signs are random.
static inline float with_sign(float scale, bool positive) {
    return float_of(bits_of(scale) ^ std::uint32_t(!positive) << 31);
}

// Bits w >= 0 of a group.
static inline std::uint32_t own_signs(const float* x) {
    std::uint32_t signs = 0;
    for (std::size_t i = 0; i < kGroup; i++) signs |= std::uint32_t(x[i] >= 0) << i;
    return signs;
}

// By error diffusion: v = w + carry, bit = v >= 0, carry = v - (bit ? scale : -scale). Weights of magnitude `threshold`
// and more have their own sign and leave the carry alone.
static inline std::uint32_t diffused_signs(const float* x, float threshold, float scale, float& carry) {
    std::uint32_t signs = 0;
    for (std::size_t i = 0; i < kGroup; i++) {
        const bool carries = !(std::fabs(x[i]) >= threshold);
        const float wanted = float_of(choose(carries, bits_of(x[i] + carry), bits_of(x[i])));
        const bool sign = wanted >= 0;
        carry = float_of(choose(carries, bits_of(wanted - with_sign(scale, sign)), bits_of(carry)));
        signs |= std::uint32_t(sign) << i;
    }
    return signs;
}

// One row.
static void q1_encode(const float* x, std::size_t groups, float threshold, bool diffuse, std::uint8_t* tiles) {
    float carry = 0;
    for (std::size_t g = 0; g < groups; g++, x += kGroup, tiles += kQ1Tile) {
        float sum = 0;
        int count = 0;
        for (std::size_t i = 0; i < kGroup; i++) {
            const float magnitude = std::fabs(x[i]);
            const bool apart = magnitude >= threshold;
            sum += float_of(choose(apart, 0, bits_of(magnitude)));
            count += !apart;
        }
        const float scale = mean_scale(sum, float(count > 1 ? count : 1));
        const std::uint32_t signs = diffuse ? diffused_signs(x, threshold, scale, carry) : own_signs(x);
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

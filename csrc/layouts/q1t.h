// q1t (SPEC 3.2): per group of 32 a tile [f16 scale][7 bytes of five base-3 digits each], 0: zero, 1: scale, 2: -scale;
// then [u32 row_ptr : rows + 1] and entries (u16 column, f16 value), which replace what the tiles say.
#pragma once
#include <array>
#include <utility>

#include "layouts/q1.h"

namespace cortiq::CORTIQ_CODEC {

static constexpr std::size_t kQ1tTile = 9, kQ1tEntry = 4, kDigits = 5, kDigitBytes = 7;

// Digit j of byte b.
static constexpr std::array<std::array<std::uint8_t, kDigits>, 256> kTernary = [] {
    std::array<std::array<std::uint8_t, kDigits>, 256> table{};
    for (std::size_t byte = 0; byte < 256; byte++)
        for (std::size_t j = 0, rest = byte; j < kDigits; j++, rest /= 3) table[byte][j] = std::uint8_t(rest % 3);
    return table;
}();

struct Ternary {
    float scale, least;  // weights of magnitude `least` and more are not zero
};

// Without control flow: which of the three it is, is random.
static inline float ternary_value(const Ternary& t, float x) {
    return float_of(choose(std::fabs(x) >= t.least, bits_of(with_sign(t.scale, x >= 0)), 0));
}

// Squared errors of two candidates: their sums go on side by side.
static std::pair<double, double> ternary_errors(const Ternary& a, const Ternary& b, const float* x) {
    double error_a[kGroup], error_b[kGroup], total_a = 0, total_b = 0;
    for (std::size_t i = 0; i < kGroup; i++) {
        const double in_a = double(x[i] - ternary_value(a, x[i])), in_b = double(x[i] - ternary_value(b, x[i]));
        error_a[i] = in_a * in_a;
        error_b[i] = in_b * in_b;
    }
    for (std::size_t i = 0; i < kGroup; i++) total_a += error_a[i], total_b += error_b[i];
    return {total_a, total_b};
}

// The better candidate of a group.
static Ternary ternary_fit(const float* x) {
    float sum = 0;
    for (std::size_t i = 0; i < kGroup; i++) sum += std::fabs(x[i]);
    const float mean = sum / float(kGroup), scale_a = mean_scale(mean, 1.0f), least_b = 0.7f * mean;
    float large = 0;
    int count = 0;
    for (std::size_t i = 0; i < kGroup; i++) {
        const bool used = std::fabs(x[i]) >= least_b;
        large += float_of(choose(used, bits_of(std::fabs(x[i])), 0));
        count += used;
    }
    const Ternary a{scale_a, 0.5f * scale_a}, b{mean_scale(large, float(count > 1 ? count : 1)), least_b};
    const auto [error_a, error_b] = ternary_errors(a, b, x);
    return error_b < error_a ? b : a;
}

// One row: fits[groups] is memory for its candidates.
static void q1t_encode(const float* x, std::size_t groups, float* fits, std::uint8_t* tiles) {
    double products = 0, squares = 0;
    for (std::size_t g = 0; g < groups; g++) {
        const Ternary fit = ternary_fit(x + kGroup * g);
        fits[2 * g] = fit.scale;
        fits[2 * g + 1] = fit.least;
        for (std::size_t i = 0; i < kGroup; i++) {
            const double value = double(ternary_value(fit, x[kGroup * g + i]));
            products += value * double(x[kGroup * g + i]);
            squares += value * value;
        }
    }
    const double ratio = squares > 1e-20 ? products / squares : 1.0;
    const float factor = float(ratio < 0.5 ? 0.5 : ratio > 2.0 ? 2.0 : ratio);
    for (std::size_t g = 0; g < groups; g++, tiles += kQ1tTile) {
        const Ternary fit{fits[2 * g], fits[2 * g + 1]};
        const float scale = fit.scale * factor;
        store_u16(tiles, f16_from_f32(scale < kF16Max ? scale : kF16Max));
        std::memset(tiles + 2, 0, kDigitBytes);
        constexpr std::uint8_t power[kDigits] = {1, 3, 9, 27, 81};
        for (std::size_t i = 0; i < kGroup; i++) {
            const float value = x[kGroup * g + i];
            const int digit = int(std::fabs(value) >= fit.least) * (1 + int(!(value >= 0)));
            tiles[2 + i / kDigits] = std::uint8_t(tiles[2 + i / kDigits] + digit * power[i % kDigits]);
        }
    }
}

// No content of the outliers leads outside the view or the row.
static void q1t_decode(const MatrixView& w, std::size_t row, float* out) {
    const std::size_t groups = w.cols / kGroup;
    const std::uint8_t* tile = w.data + row * groups * kQ1tTile;
    for (std::size_t g = 0; g < groups; g++, tile += kQ1tTile) {
        const float scale = f32_from_f16(load_u16(tile)), values[3] = {0.0f, scale, -scale};
        for (std::size_t i = 0; i < kGroup; i++)
            out[kGroup * g + i] = values[kTernary[tile[2 + i / kDigits]][i % kDigits]];
    }
    const std::uint8_t *starts = w.data + w.rows * groups * kQ1tTile, *entries = starts + 4 * (w.rows + 1);
    const std::size_t count = std::size_t(w.data + w.nbytes - entries) / kQ1tEntry;
    std::uint32_t range[2];
    std::memcpy(range, starts + 4 * row, 8);
    for (std::size_t i = range[0]; i < range[1] && i < count; i++) {
        const std::size_t column = load_u16(entries + kQ1tEntry * i);
        if (column < w.cols) out[column] = f32_from_f16(load_u16(entries + kQ1tEntry * i + 2));
    }
}

}  // namespace cortiq::CORTIQ_CODEC

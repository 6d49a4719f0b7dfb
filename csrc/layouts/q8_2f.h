// q8_2f (SPEC 3.2): [int8 : rows cols][f16 scale : rows][f16 field : cols], w = (q * scale) * field. Encoding divides by
// the field, then goes on as q8_row does, with scale = max(f16(absmax / 127), 2^-14) of the ratios.
#pragma once
#include "core/view.h"
#include "layouts/floats.h"

namespace cortiq::CORTIQ_CODEC {

// Row in place: x becomes x / field.
static void q8_2f_divide(const std::uint8_t* field, std::size_t n, float* x) {
    for (std::size_t i = 0; i < n; i++) x[i] /= f32_from_f16(load_u16(field + 2 * i));
}

static void q8_2f_decode(const MatrixView& w, std::size_t row, float* out) {
    const std::uint8_t *quants = w.data + row * w.cols, *scales = w.data + w.rows * w.cols, *field = scales + 2 * w.rows;
    const float scale = f32_from_f16(load_u16(scales + 2 * row));
    for (std::size_t i = 0; i < w.cols; i++)
        out[i] = float(std::int8_t(quants[i])) * scale * f32_from_f16(load_u16(field + 2 * i));
}

}  // namespace cortiq::CORTIQ_CODEC

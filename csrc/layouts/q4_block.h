// q4_block (SPEC 3.2): groups of 32 of the flattened matrix, planes [16 bytes of nibbles : g] and [f16 scale : g]; the
// groups themselves are those of q4_tiled. A row may begin and end inside a group.
#pragma once
#include "core/view.h"
#include "layouts/floats.h"

namespace cortiq::CORTIQ_CODEC {

static void q4_block_decode(const MatrixView& w, std::size_t row, float* out) {
    const std::size_t groups = (w.rows * w.cols + kGroup - 1) / kGroup, first = row * w.cols;
    const std::uint8_t *nibbles = w.data, *scales = w.data + 16 * groups;
    for (std::size_t i = 0; i < w.cols;) {
        const std::size_t group = (first + i) / kGroup, next = (group + 1) * kGroup - first;
        const std::size_t end = next < w.cols ? next : w.cols;
        const float scale = f32_from_f16(load_u16(scales + 2 * group));
        for (; i < end; i++) {
            const std::size_t at = first + i;
            const int nibble = nibbles[at / 2] >> (at % 2 * 4) & 15;
            out[i] = float(nibble - 8) * scale;
        }
    }
}

}  // namespace cortiq::CORTIQ_CODEC

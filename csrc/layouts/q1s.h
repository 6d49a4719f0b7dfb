// q1s (SPEC 3.2): q1 tiles, [u32 count], then entries (u32 flat index, f16 value), which replace what the tiles say. Files
// may have them in any order; here they ascend, and of equal indices the last one counts.
#pragma once
#include "layouts/q1.h"

namespace cortiq::CORTIQ_CODEC {

static constexpr std::size_t kQ1sEntry = 6;

static inline std::uint32_t q1s_index(const std::uint8_t* entries, std::size_t i) {
    std::uint32_t index;
    std::memcpy(&index, entries + kQ1sEntry * i, 4);
    return index;
}

// Entries are found by bisection. No content of theirs leads outside the view or the row.
static void q1s_decode(const MatrixView& w, std::size_t row, float* out) {
    q1_decode(w, row, out);
    const std::size_t head = w.rows * (w.cols / kGroup) * kQ1Tile + 4, count = (w.nbytes - head) / kQ1sEntry;
    const std::uint8_t* entries = w.data + head;
    const std::size_t first = row * w.cols;
    std::size_t low = 0, high = count;
    while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (q1s_index(entries, middle) < first) low = middle + 1;
        else high = middle;
    }
    for (; low < count; low++) {
        const std::size_t column = q1s_index(entries, low) - first;
        if (column >= w.cols) break;
        out[column] = f32_from_f16(load_u16(entries + kQ1sEntry * low + 4));
    }
}

}  // namespace cortiq::CORTIQ_CODEC

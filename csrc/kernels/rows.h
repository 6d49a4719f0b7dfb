// Where things are in the weight layouts (SPEC 3.2), and how one row decodes to f32. Compiled once per instruction
// set, inside its own namespace.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/view.h"
#include "kernels/kernels.h"

namespace cortiq::CORTIQ_KERNELS {

using u8 = std::uint8_t;
using i8 = std::int8_t;
using std::size_t;

template <class T>
inline T smaller(T a, T b) {
    return a < b ? a : b;
}
constexpr size_t kBlock = 8;  // groups: one for each lane of a sum

inline size_t div_up(size_t n, size_t by) { return (n + by - 1) / by; }
inline size_t round_up(size_t n, size_t to) { return div_up(n, to) * to; }

template <class T>
inline T load_as(const void* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

inline float half_to_float(std::uint16_t h) {
    const std::uint32_t sign = std::uint32_t(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3ffu;
    if (exponent == 0) {  // zero and subnormals: an integer times 2^-24 is exact
        const float magnitude = float(mantissa) * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    std::uint32_t bits = sign | (exponent + 112) << 23 | mantissa << 13;
    if (exponent == 31) bits = sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0u);
    return load_as<float>(&bits);
}

// `p`, or a zero padded copy of the `nbytes` there, if the `span` bytes from it that a step reads are not all below `limit`.
inline const u8* readable(const u8* p, size_t nbytes, size_t span, const u8* limit, u8* copy) {
    if (size_t(limit - p) >= span) return p;
    std::memset(copy, 0, span);
    std::memcpy(copy, p, nbytes);
    return copy;
}

// One call of a linear operator: everything but the weights' dtype and the activations.
struct Job {
    const MatrixView& w;
    size_t m, r0, r1;
    float* y;
    size_t y_stride;
    Scratch scratch;
};

// Rows of 18-byte tiles: f16 scale, then 32 nibbles, element 2k in the low half of byte k; value (q - 8) * scale.
struct Q4Tiled {
    static constexpr size_t kTile = 18;
    explicit Q4Tiled(const MatrixView& w) : data(w.data), limit(w.limit), groups(w.cols / kGroup) {}
    const u8* row(size_t r) const { return data + r * groups * kTile; }
    const u8 *data, *limit;
    size_t groups;

    static void decode(const MatrixView& w, size_t r, float* out) {
        const Q4Tiled t(w);
        const u8* p = t.row(r);
        for (size_t g = 0; g < t.groups; g++, p += kTile, out += kGroup) {
            const float scale = half_to_float(load_as<std::uint16_t>(p));
            for (size_t k = 0; k < 16; k++) {
                out[2 * k] = float(int(p[2 + k] & 15) - 8) * scale;
                out[2 * k + 1] = float(int(p[2 + k] >> 4) - 8) * scale;
            }
        }
    }
};

// int8 values of all rows, then one f16 scale per row. A row may have any number of columns. What follows in q8_2f, one
// f16 factor per column, is in the activations already (fold).
struct Q8Row {
    explicit Q8Row(const MatrixView& w)
        : data(w.data), limit(w.limit), scales(w.data + w.rows * w.cols), cols(w.cols), groups(div_up(w.cols, kGroup)) {}
    const u8* row(size_t r) const { return data + r * cols; }
    float scale(size_t r) const { return half_to_float(load_as<std::uint16_t>(scales + 2 * r)); }
    const u8 *data, *limit, *scales;
    size_t cols, groups;

    static void decode(const MatrixView& w, size_t r, float* out) {
        const Q8Row t(w);
        const u8* p = t.row(r);
        const float scale = t.scale(r);
        for (size_t k = 0; k < t.cols; k++) out[k] = float(int(i8(p[k]))) * scale;
    }
};

inline const u8* column_field(const MatrixView& w) { return w.data + w.rows * w.cols + 2 * w.rows; }

struct F32 {
    static constexpr size_t kBytes = 4;
    static float value(const u8* p) { return load_as<float>(p); }
};
struct F16 {
    static constexpr size_t kBytes = 2;
    static float value(const u8* p) { return half_to_float(load_as<std::uint16_t>(p)); }
};
struct BF16 {
    static constexpr size_t kBytes = 2;
    static float value(const u8* p) {
        const std::uint32_t bits = std::uint32_t(load_as<std::uint16_t>(p)) << 16;
        return load_as<float>(&bits);
    }
};

template <class T>
inline const u8* dense_row(const MatrixView& w, size_t r) {
    return w.data + r * w.cols * T::kBytes;
}

template <class T>
inline void decode_dense(const MatrixView& w, size_t r, float* out) {
    const u8* p = dense_row<T>(w, r);
    for (size_t k = 0; k < w.cols; k++) out[k] = T::value(p + k * T::kBytes);
}

}  // namespace cortiq::CORTIQ_KERNELS

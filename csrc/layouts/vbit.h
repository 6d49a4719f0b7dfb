// vbit and vbit_ro (SPEC 3.2): a row of b bits a weight is [f16 scale : groups] and, elsewhere, 4 b bytes per group,
// integers u most significant bit first, w = (u - L) * scale, L = 2^(b - 1) - 1; cortiq/layouts/vbit.py.
// Eight weights are b bytes.
#pragma once
#include "layouts/ladder.h"

namespace cortiq::CORTIQ_CODEC {

static inline std::int32_t zero_level(int width) { return (1 << (width - 1)) - 1; }

static void vbit_scales(const float* x, std::size_t groups, int width, std::uint8_t* scales) {
    const float levels = float(zero_level(width));
    for (std::size_t g = 0; g < groups; g++) {
        const float most = float_of(absmax_bits(x + kGroup32 * g, kGroup32));
        store_u16(scales + 2 * g, f16_exact(stored_scale(most / levels)));
    }
}

template <int width>
static void vbit_pack_row(const float* x, std::size_t groups, const std::uint8_t* scales, std::uint8_t* out) {
    const std::int32_t zero = zero_level(width), top = 2 * zero + 1;
    for (std::size_t g = 0; g < groups; g++, x += kGroup32) {
        const float scale = f32_from_f16(load_u16(scales + 2 * g));
        std::int32_t codes[kGroup32];
        for (std::size_t i = 0; i < kGroup32; i++) {
            const std::int32_t code = std::int32_t(bits_of(x[i] / scale + 0x1.8p23f) - 0x4b400000) + zero;
            const std::int32_t above = code > 0 ? code : 0;
            codes[i] = above < top ? above : top;
        }
        for (std::size_t i = 0; i < kGroup32; i += 8, out += width) {
            std::uint64_t all_bits = 0;
            for (std::size_t k = 0; k < 8; k++) all_bits = all_bits << width | std::uint64_t(codes[i + k]);
            for (int byte = 0; byte < width; byte++) out[byte] = std::uint8_t(all_bits >> 8 * (width - 1 - byte));
        }
    }
}

template <int width>
static void vbit_decode_row(const std::uint8_t* packed, const std::uint8_t* scales, std::size_t groups, float* out) {
    const std::int32_t zero = zero_level(width), mask = (1 << width) - 1;
    for (std::size_t g = 0; g < groups; g++) {
        const float scale = f32_from_f16(load_u16(scales + 2 * g));
        for (std::size_t i = 0; i < kGroup32; i += 8, packed += width, out += 8) {
            std::uint64_t all_bits = 0;
            for (int byte = 0; byte < width; byte++) all_bits = all_bits << 8 | packed[byte];
            for (int k = 0; k < 8; k++)
                out[k] = float((std::int32_t(all_bits >> width * (7 - k)) & mask) - zero) * scale;
        }
    }
}

static void vbit_pack(const float* x, std::size_t groups, int width, const std::uint8_t* scales, std::uint8_t* out) {
    switch (width) {
        case 3: return vbit_pack_row<3>(x, groups, scales, out);
        case 4: return vbit_pack_row<4>(x, groups, scales, out);
        case 5: return vbit_pack_row<5>(x, groups, scales, out);
        case 6: return vbit_pack_row<6>(x, groups, scales, out);
        default: return vbit_pack_row<8>(x, groups, scales, out);
    }
}

// Where a packed row begins: in vbit_ro a table tells, in vbit the widths of the rows before it.
template <bool table>
static std::size_t vbit_offset(const MatrixView& w, std::size_t row) {
    const std::size_t groups = w.cols / kGroup32, head = w.rows + 2 * w.rows * groups;
    if (table) {
        std::uint32_t offset;
        std::memcpy(&offset, w.data + head + 4 * row, 4);
        return head + 4 * (w.rows + 1) + offset;
    }
    std::size_t bits = 0;
    for (std::size_t before = 0; before < row; before++) bits += w.data[before];
    return head + 4 * groups * bits;
}

// A row that a wrong width or table puts outside of the payload is NaN.
template <bool table>
static void vbit_decode(const MatrixView& w, std::size_t row, float* out) {
    const std::size_t groups = w.cols / kGroup32, offset = vbit_offset<table>(w, row);
    const int width = w.data[row];
    const std::uint8_t *scales = w.data + w.rows + 2 * groups * row, *packed = w.data + offset;
    const bool inside = offset <= w.nbytes && w.nbytes - offset >= 4 * groups * std::size_t(width);
    switch (inside ? width : 0) {
        case 3: return vbit_decode_row<3>(packed, scales, groups, out);
        case 4: return vbit_decode_row<4>(packed, scales, groups, out);
        case 5: return vbit_decode_row<5>(packed, scales, groups, out);
        case 6: return vbit_decode_row<6>(packed, scales, groups, out);
        case 8: return vbit_decode_row<8>(packed, scales, groups, out);
        default:
            for (std::size_t i = 0; i < w.cols; i++) out[i] = __builtin_nanf("");
    }
}

}  // namespace cortiq::CORTIQ_CODEC

// The only switch on dtype of the decoders, and the sizes of payloads.
#include "layouts/codec.h"

#include <cstring>
#include <string>

#include "core/error.h"
#include "core/half.h"

namespace cortiq {

namespace {

using Wide = unsigned __int128;

constexpr std::size_t kQ4Tile = 18, kQ4Nibbles = 16, kQ1Tile = 6, kQ1tTile = 9;
constexpr std::size_t kMostNbytes = std::size_t{1} << 62, kMostDim = std::size_t{1} << 48;

[[noreturn]] void refuse_dtype(DType dtype) {
    throw Error("UnsupportedFeature", "dtype", "no codec for dtype id " + std::to_string(int(dtype)));
}

bool grouped(DType layout) {
    return layout == DType::q4_tiled || layout == DType::q1 || layout == DType::q1s || layout == DType::q1t;
}

std::uint16_t half_at(const std::uint8_t* p) {
    std::uint16_t half;
    std::memcpy(&half, p, 2);
    return half;
}

// Planes of a block of rows whose columns are in order, and what follows them in the payload.
struct Sizes {
    std::vector<Wide> planes;
    Wide tail = 0;
    bool exact = true;
};

Sizes sizes(DType layout, Wide rows, Wide cols) {
    const Wide groups = rows * (cols / kGroup), flat_groups = (rows * cols + kGroup - 1) / kGroup;
    switch (layout) {
        case DType::f32: return {.planes = {4 * rows * cols}};
        case DType::f16:
        case DType::bf16: return {.planes = {2 * rows * cols}};
        case DType::q8_row: return {.planes = {rows * cols, 2 * rows}};
        case DType::q8_2f: return {.planes = {rows * cols, 2 * rows}, .tail = 2 * cols};
        case DType::q4_tiled: return {.planes = {kQ4Tile * groups}};
        case DType::q4_block: return {.planes = {kQ4Nibbles * flat_groups, 2 * flat_groups}};
        case DType::q1: return {.planes = {kQ1Tile * groups}};
        case DType::q1s: return {.planes = {kQ1Tile * groups}, .tail = 4, .exact = false};
        case DType::q1t: return {.planes = {kQ1tTile * groups}, .tail = 4 * (rows + 1), .exact = false};
        default: refuse_dtype(layout);
    }
}

}  // namespace

const CodecOps& codec_ops(Isa isa) {
    switch (isa) {
#if defined(__x86_64__)
        case Isa::avx512: return codec_avx512::ops();
        case Isa::avx2: return codec_avx2::ops();
#endif
        default: return codec_scalar::ops();
    }
}

PayloadSize payload_size(DType layout, std::size_t rows, std::size_t cols) {
    if (rows > kMostDim || cols > kMostDim) throw Error("Bounds", "shape", "the size of a matrix overflows");
    const Sizes found = sizes(layout, rows, cols);
    if (grouped(layout) && (cols == 0 || cols % kGroup != 0))
        throw Error("Bounds", "shape", "columns must be a positive multiple of 32");
    Wide total = found.tail;
    for (Wide nbytes : found.planes) total += nbytes;
    if (total > kMostNbytes) throw Error("Bounds", "shape", "the size of a matrix overflows");
    return {std::size_t(total), found.exact};
}

std::vector<std::size_t> plane_nbytes(DType layout, std::size_t rows, std::size_t cols) {
    if (grouped(layout) && cols % kGroup != 0)
        throw Error("Parse", "in_mod_32", "this layout needs columns in groups of 32");
    payload_size(layout, rows, cols);
    std::vector<std::size_t> planes;
    for (Wide nbytes : sizes(layout, rows, cols).planes) planes.push_back(std::size_t(nbytes));
    return planes;
}

void decode_row(Isa isa, const MatrixView& w, std::size_t row, float* out) {
    const CodecOps& ops = codec_ops(isa);
    const std::size_t at = row * w.cols;
    switch (w.dtype) {
        case DType::f32: std::memcpy(out, w.data + 4 * at, 4 * w.cols); break;
        case DType::f16: ops.widen_f16(w.data + 2 * at, w.cols, out); break;
        case DType::bf16: ops.widen_bf16(w.data + 2 * at, w.cols, out); break;
        case DType::q8_row: {
            const std::uint8_t* scales = w.data + w.rows * w.cols;
            ops.q8_decode(w.data + at, w.cols, f32_from_f16(half_at(scales + 2 * row)), out);
            break;
        }
        case DType::q4_tiled: ops.q4_decode(w.data + at / kGroup * kQ4Tile, w.cols / kGroup, out); break;
        case DType::q4_block: ops.q4_block(w, row, out); break;
        case DType::q8_2f: ops.q8_2f(w, row, out); break;
        case DType::q1: ops.q1(w, row, out); break;
        case DType::q1s: ops.q1s(w, row, out); break;
        case DType::q1t: ops.q1t(w, row, out); break;
        default: refuse_dtype(w.dtype);
    }
}

}  // namespace cortiq

// Encoders and decoders of the layouts (SPEC 3.2), byte-equal to the NumPy definitions on every instruction set.
//
// A payload consists of planes, each with one record per row. Both directions work on any block of rows, so that a
// tensor larger than memory passes through in blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/cpu.h"
#include "core/dtype.h"

namespace cortiq {

enum class Encoder { plain, best };

// Weights to encode, row-major and unpadded. `dtype` is f32, f16 or bf16; `data` need not be aligned.
struct Weights {
    const std::uint8_t* data;
    DType dtype;
    std::size_t rows, cols;
};

// Bytes of one row in each plane. Throws Error{"UnsupportedFeature", "dtype"} for a dtype without codec and
// Error{"Parse", "in_mod_32"} for columns it cannot have.
std::vector<std::size_t> row_nbytes(DType layout, std::size_t cols);

// Encodes all rows of `weights`; planes[i] receives rows * row_nbytes[i] bytes. `first_row` is added to the row an
// error names. Throws Error{"NonFinite"}: "value" for NaN and infinity, "range" for what the layout cannot hold.
void encode_rows(Isa isa, DType layout, Encoder encoder, const Weights& weights, std::size_t first_row,
                 std::span<std::uint8_t* const> planes);

// The reverse: f32 [rows, cols] from blocks of planes.
void decode_rows(Isa isa, DType layout, std::span<const std::uint8_t* const> planes, std::size_t rows,
                 std::size_t cols, float* out);

// Largest magnitude of each row. Throws Error{"NonFinite", "value"}.
void row_absmax(Isa isa, const Weights& weights, std::size_t first_row, float* out);

// vbit and vbit_ro, whose rows differ in length: widths[row] is 3, 4, 5, 6 or 8 bits, columns come in groups of 32.
// Scales are [f16 : cols / 32] per row, packed rows cols * width / 8 bytes, one after the other. Throws as encode_rows.
void vbit_scales(Isa isa, const Weights& weights, const std::uint8_t* widths, std::size_t first_row,
                 std::uint8_t* scales);
void vbit_pack(Isa isa, const Weights& weights, const std::uint8_t* widths, const std::uint8_t* scales,
               std::uint8_t* packed);
void vbit_decode(Isa isa, const std::uint8_t* widths, const std::uint8_t* scales, const std::uint8_t* packed,
                 std::size_t rows, std::size_t cols, float* out);

// Where a row of q4tp or q2tp goes. `logs` is scratch for one float per group.
struct LadderRow {
    std::uint8_t* weights;
    std::uint8_t* params;
    std::uint8_t* codes;
    float* logs;
};

// The inner loops, one table per instruction set. Pointers into payloads are unaligned.
struct CodecOps {
    void (*widen_f16)(const std::uint8_t* halves, std::size_t n, float* out);
    void (*widen_bf16)(const std::uint8_t* halves, std::size_t n, float* out);
    std::uint32_t (*absmax_bits)(const float* x, std::size_t n);  // f32 bits of the largest |x|; NaN beats infinity
    void (*narrow_f16)(const float* x, std::size_t n, std::uint8_t* out);
    void (*narrow_bf16)(const float* x, std::size_t n, std::uint8_t* out);
    void (*q8_quantize)(const float* x, std::size_t n, float scale, std::uint8_t* out);
    void (*q8_decode)(const std::uint8_t* quants, std::size_t n, float scale, float* out);
    void (*q4_encode_plain)(const float* x, std::size_t groups, std::uint8_t* tiles);
    void (*q4_encode_best)(const float* x, std::size_t groups, std::uint8_t* tiles);
    void (*q4_decode)(const std::uint8_t* tiles, std::size_t groups, float* out);
    void (*q4tp_encode)(const float* x, std::size_t groups, bool best, const LadderRow& row);
    void (*q4tp_decode)(const std::uint8_t* weights, const std::uint8_t* params, const std::uint8_t* codes,
                        std::size_t groups, float* out);
    void (*q2tp_encode)(const float* x, std::size_t groups, bool best, const LadderRow& row);
    void (*q2tp_decode)(const std::uint8_t* weights, const std::uint8_t* params, const std::uint8_t* codes,
                        std::size_t groups, float* out);
    void (*vbit_scales)(const float* x, std::size_t groups, int width, std::uint8_t* scales);
    void (*vbit_pack)(const float* x, std::size_t groups, int width, const std::uint8_t* scales, std::uint8_t* out);
    void (*vbit_decode)(const std::uint8_t* packed, const std::uint8_t* scales, std::size_t groups, int width,
                        float* out);
};

namespace codec_scalar {
const CodecOps& ops();
}
namespace codec_avx2 {
const CodecOps& ops();
}
namespace codec_avx512 {
const CodecOps& ops();
}

}  // namespace cortiq

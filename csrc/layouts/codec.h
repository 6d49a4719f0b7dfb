// Encoders and decoders of the layouts (SPEC 3.2), byte-equal to the NumPy definitions on every instruction set.
//
// A payload consists of planes and, in some layouts, a tail. Encoding works on any block of rows, each plane receiving
// what the block contributes to it, so that a tensor larger than memory passes through in blocks; the tail is the
// caller's. Decoding works on any row of a whole payload.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/cpu.h"
#include "core/dtype.h"
#include "core/view.h"

namespace cortiq {

enum class Encoder { plain, best, diffuse };  // diffuse: q1 with signs by error diffusion

// Weights to encode, row-major and unpadded. `dtype` is f32, f16 or bf16; `data` need not be aligned.
struct Weights {
    const std::uint8_t* data;
    DType dtype;
    std::size_t rows, cols;
};

// What a layout's encoder must know of the whole tensor: q8_2f the f16 field [cols], q1s the f32 threshold and the u32
// number of outliers, vbit and vbit_ro the u8 widths [rows], the others nothing.
using Survey = std::span<const std::uint8_t>;

struct PayloadSize {
    std::size_t nbytes;
    bool exact;  // false: the least there can be, the content decides
};

// Bytes of a payload of [rows, cols]. Throws Error{"UnsupportedFeature", "dtype"} for a dtype without codec and
// Error{"Bounds", "shape"} for columns it cannot have and a size that overflows.
PayloadSize payload_size(DType layout, std::size_t rows, std::size_t cols);

// What a block of rows takes in each plane. Throws as payload_size, with "Parse", "in_mod_32" for the columns.
std::vector<std::size_t> plane_nbytes(DType layout, std::size_t rows, std::size_t cols);

// Encodes all rows of `weights` into planes of these sizes. `first_row` is added to the row an error names. Throws
// Error{"NonFinite"}: "value" for NaN and infinity, "range" for what the layout cannot hold; Error{"UsageError"}:
// "survey" for one of another size, "encoder" for one the layout does not have.
struct EncodeJob {
    Isa isa;
    DType layout;
    Encoder encoder;
    Weights weights;
    Survey survey;
    std::size_t first_row;
};
void encode_rows(const EncodeJob& job, std::span<std::uint8_t* const> planes);

// Row `row` of a matrix as f32: out[cols]. Nothing in a payload of the right size leads outside of it.
void decode_row(Isa isa, const MatrixView& w, std::size_t row, float* out);

// Largest magnitude of each row. Throws Error{"NonFinite", "value"}.
void row_absmax(Isa isa, const Weights& weights, std::size_t first_row, float* out);

// The packed rows of vbit, one after the other: cols * width / 8 bytes each. `widths` are 3, 4, 5, 6 or 8, one per row of
// `weights`, whose columns come in groups of 32. Throws as encode_rows.
void vbit_pack(Isa isa, const Weights& weights, const std::uint8_t* widths, std::uint8_t* packed);

// Where a row of q4tp or q2tp goes. `logs` is scratch for one float per group.
struct LadderRow {
    std::uint8_t* weights;
    std::uint8_t* params;
    std::uint8_t* codes;
    float* logs;
};

using RowDecoder = void (*)(const MatrixView& w, std::size_t row, float* out);

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
    void (*q8_2f_divide)(const std::uint8_t* field, std::size_t n, float* x);
    void (*q1_encode)(const float* x, std::size_t groups, float threshold, bool diffuse, std::uint8_t* tiles);
    void (*q1t_encode)(const float* x, std::size_t groups, float* fits, std::uint8_t* tiles);
    void (*q4tp_encode)(const float* x, std::size_t groups, bool best, const LadderRow& row);
    void (*q2tp_encode)(const float* x, std::size_t groups, bool best, const LadderRow& row);
    void (*vbit_scales)(const float* x, std::size_t groups, int width, std::uint8_t* scales);
    void (*vbit_pack)(const float* x, std::size_t groups, int width, const std::uint8_t* scales, std::uint8_t* out);
    RowDecoder q4_block, q8_2f, q1, q1s, q1t, q4tp, q2tp, vbit, vbit_ro;
};

const CodecOps& codec_ops(Isa isa);

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

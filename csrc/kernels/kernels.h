// Linear operators y = x W^T over weights in file layout: one table of functions per instruction set.
//
// Every result is a fixed function of one row of x and one row of W. It does not depend on other rows of the batch,
// on how rows of W are split between threads, or on the instruction set:
//   quantized weights (fast mode)   x is quantized to int8 with one scale per 32. The dot product of a group of 32 is
//     exact in int32 (zero point included); group g adds fma(float(dot), w_scale * x_scale, lane[g % 8]), q8_row with
//     w_scale = 1. The eight lanes are summed as ((0+4)+(2+6)) + ((1+5)+(3+7)); q8_row multiplies by its row scale last.
//     q8_2f is q8_row of x * field, its column factors, in f32.
//   float weights, and every weight in exact mode (decoded to f32 first)   column k adds fma(w, x, lane[k % 16]); then
//     lane[i] += lane[i + 8], and the eight are summed as above.
// Lanes start at +0, and +0 is added to the sum of the eight: padding with zeros never shows, not even in a sign.
//
// Quantizing a group of x (columns beyond k count as 0): a = max |x|; scale = a / 127, q = nearest_even(x * (127 / a)).
// Below 2^-100 the group is zero; a group with an infinity or NaN gets scale NaN and q = 0, so the result is NaN.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/cpu.h"
#include "core/view.h"

namespace cortiq {

// Memory of one thread for unpacked panels and partial sums. Kernels never allocate.
struct Scratch {
    std::uint8_t* data = nullptr;  // 64-byte aligned
    std::size_t size = 0;
};

struct Kernels {
    Isa isa;

    // True when there are kernels for `dtype`. The others work too, in both modes and with the same rule for sums: their
    // rows are decoded to f32 in scratch memory by the layout's decoder and multiplied as float weights.
    bool (*is_fast)(DType dtype);

    // True when `dtype` multiplies int8 activations in fast mode; the others always take linear_f32.
    bool (*takes_int8)(DType dtype);

    // Bytes of one quantized activation row of k columns: a multiple of 64. What is inside is the kernel's own affair.
    std::size_t (*act_nbytes)(std::size_t k);
    // Quantizes groups [g0, g1) of one row: x is the whole row (k columns; a ragged last group counts as zero padded).
    // Groups are independent: several threads may fill one row. `act` is 64-byte aligned.
    void (*quantize)(const float* x, std::size_t k, std::size_t g0, std::size_t g1, std::uint8_t* act);
    // What the int8 kernels see of a row quantized by the above: out[k] = q * scale.
    void (*dequantize)(const std::uint8_t* act, std::size_t k, float* out);

    // True when a factor per column belongs to `dtype`: linear_int8 then takes what quantize makes of fold's result.
    bool (*folds)(DType dtype);
    // out[k] = x[k] * field[k] over all columns of such a matrix.
    void (*fold)(const MatrixView& w, const float* x, float* out);

    // y[i * y_stride + r] for rows r in [r0, r1) and activation rows i in [0, m), act rows act_nbytes(k) apart.
    void (*linear_int8)(const MatrixView& w, const std::uint8_t* act, std::size_t m, std::size_t r0, std::size_t r1,
                        float* y, std::size_t y_stride, Scratch scratch);
    // The same with f32 activations, rows x_stride floats apart.
    void (*linear_f32)(const MatrixView& w, const float* x, std::size_t x_stride, std::size_t m, std::size_t r0,
                       std::size_t r1, float* y, std::size_t y_stride, Scratch scratch);
    // Scratch that the two above need for k columns and at most m rows.
    std::size_t (*scratch_nbytes)(std::size_t k, std::size_t m);

    // One row of W as f32: out[cols]. Embedding lookup.
    void (*gather)(const MatrixView& w, std::size_t row, float* out);
};

// The table of `isa`; throws Error{"UsageError", "isa"} when this build has none (another processor family).
const Kernels& kernels(Isa isa);

// Checks what a view of a matrix [rows, cols] may be. Throws Error{"UnsupportedFeature", "dtype"} for a dtype that
// cannot be decoded, Error{"Bounds", "shape"} for a shape its layout cannot have (SPEC 3.2) or whose size overflows,
// Error{"Bounds", "nbytes"} for another size than that of the layout, or where the content decides a smaller one.
void check_matrix(DType dtype, std::size_t rows, std::size_t cols, std::size_t nbytes);

}  // namespace cortiq

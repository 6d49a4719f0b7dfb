// The one place of this folder that tells dtypes apart: which functions of an instruction set serve which layout.
// Compiled once per instruction set, inside its own namespace.
#pragma once
#include "kernels/rows.h"
#include "layouts/codec.h"

namespace cortiq::CORTIQ_KERNELS {

// The decoder of the layouts, for any dtype.
template <Isa kIsa>
inline void decode_any(const MatrixView& w, size_t row, float* out) {
    decode_row(kIsa, w, row, out);
}

struct Entry {
    DType dtype;
    void (*int8)(const Job& job, const u8* act);  // null: this dtype takes f32 activations only
    void (*f32)(const Job& job, const float* x, size_t x_stride);
    void (*decode)(const MatrixView& w, size_t row, float* out);
};

// Each instruction set defines them: one line per dtype with kernels of its own, and one for all others, whose rows are
// decoded to f32 in scratch memory and multiplied by the dense kernel.
const Entry& entry(DType dtype);
bool is_fast(DType dtype);

// The entry of a dtype, or null.
template <size_t kCount>
inline const Entry* find(const Entry (&entries)[kCount], DType dtype) {
    for (const Entry& one : entries)
        if (one.dtype == dtype) return &one;
    return nullptr;
}

inline bool takes_int8(DType dtype) { return entry(dtype).int8 != nullptr; }
inline bool folds(DType dtype) { return dtype == DType::q8_2f; }

inline void linear_int8(const MatrixView& w, const u8* act, size_t m, size_t r0, size_t r1, float* y, size_t y_stride,
                        Scratch scratch) {
    if (m != 0 && r0 < r1) entry(w.dtype).int8(Job{w, m, r0, r1, y, y_stride, scratch}, act);
}

inline void linear_f32(const MatrixView& w, const float* x, size_t x_stride, size_t m, size_t r0, size_t r1, float* y,
                       size_t y_stride, Scratch scratch) {
    if (m != 0 && r0 < r1) entry(w.dtype).f32(Job{w, m, r0, r1, y, y_stride, scratch}, x, x_stride);
}

inline void gather(const MatrixView& w, size_t row, float* out) { entry(w.dtype).decode(w, row, out); }

}  // namespace cortiq::CORTIQ_KERNELS

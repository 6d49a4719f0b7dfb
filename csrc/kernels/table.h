// The one place of this folder that tells dtypes apart: which functions of an instruction set serve which layout.
// Compiled once per instruction set, inside its own namespace.
#pragma once
#include "kernels/rows.h"

namespace cortiq::CORTIQ_KERNELS {

struct Entry {
    DType dtype;
    void (*int8)(const Job& job, const u8* act);  // null: this dtype takes f32 activations only
    void (*f32)(const Job& job, const float* x, size_t x_stride);
    void (*decode)(const MatrixView& w, size_t row, float* out);
};

// Each instruction set defines it: one line per dtype.
const Entry& entry(DType dtype);

template <size_t kCount>
inline const Entry& find(const Entry (&entries)[kCount], DType dtype) {
    size_t i = 0;
    while (i != kCount - 1 && entries[i].dtype != dtype) i++;  // views are validated: the dtype is there
    return entries[i];
}

inline bool takes_int8(DType dtype) { return entry(dtype).int8 != nullptr; }

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

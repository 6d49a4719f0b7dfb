// Products with f32 activations, for instruction sets whose vec.h provides F16x (sixteen floats). Compiled once per
// instruction set, inside its own namespace.
#pragma once
#include "kernels/rows.h"

namespace cortiq::CORTIQ_KERNELS {

// The last k % 16 columns of a row of x, zero padded.
struct Tail {
    Tail(const float* x, size_t k) : count(k % 16) { std::memcpy(value, x + (k - count), count * sizeof(float)); }
    alignas(64) float value[16] = {};
    size_t count;
};

// One row, straight from the file's layout.
template <class T>
void dense_gemv(const Job& job, const float* x) {
    const size_t k = job.w.cols, full = k / 16 * 16;
    const Tail tail(x, k);
    for (size_t r = job.r0; r < job.r1; r++) {
        const u8* p = dense_row<T>(job.w, r);
        F16x lanes = zero16();
        for (size_t i = 0; i < full; i += 16) lanes = fma16(weights16(T(), p + i * T::kBytes), load16(x + i), lanes);
        if (tail.count != 0) {
            alignas(64) u8 rest[16 * T::kBytes] = {};
            std::memcpy(rest, p + full * T::kBytes, tail.count * T::kBytes);
            lanes = fma16(weights16(T(), rest), load16(tail.value), lanes);
        }
        job.y[r] = sum16(lanes);
    }
}

// kRows decoded rows times kCols rows of x; rows are `w_stride` floats apart and zero padded to whole sixteens.
template <int kRows, int kCols>
inline void dense_tile(const float* w, size_t w_stride, const float* x, size_t x_stride, size_t k, float* y,
                       size_t y_stride) {
    F16x lanes[kRows][kCols];
    for (auto& row : lanes)
        for (F16x& v : row) v = zero16();
    auto step = [&](size_t i, auto load_x) __attribute__((always_inline)) {
        F16x weight[kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; r++) weight[r] = load16(w + size_t(r) * w_stride + i);
#pragma GCC unroll 4
        for (int c = 0; c < kCols; c++) {
            const F16x v = load_x(c);
#pragma GCC unroll 4
            for (int r = 0; r < kRows; r++) lanes[r][c] = fma16(weight[r], v, lanes[r][c]);
        }
    };
    const size_t full = k / 16 * 16;
    for (size_t i = 0; i < full; i += 16) step(i, [&](int c) { return load16(x + size_t(c) * x_stride + i); });
    if (full != k) step(full, [&](int c) { return load16(Tail(x + size_t(c) * x_stride, k).value); });
    for (int r = 0; r < kRows; r++)
        for (int c = 0; c < kCols; c++) y[size_t(c) * y_stride + size_t(r)] = sum16(lanes[r][c]);
}

constexpr size_t kDenseRows = 8;  // rows decoded together

inline size_t dense_scratch(size_t k) { return kDenseRows * round_up(k, 16) * sizeof(float); }

// Any layout: rows are decoded to f32 first.
template <void (*kDecode)(const MatrixView&, size_t, float*)>
void dense_gemm(const Job& job, const float* x, size_t x_stride) {
    const size_t k = job.w.cols, stride = round_up(k, 16);
    float* rows = reinterpret_cast<float*>(job.scratch.data);
    for (size_t r = job.r0; r < job.r1; r += kDenseRows) {
        const size_t count = smaller(kDenseRows, job.r1 - r);
        for (size_t i = 0; i < count; i++) {
            kDecode(job.w, r + i, rows + i * stride);
            std::memset(rows + i * stride + k, 0, (stride - k) * sizeof(float));
        }
        for (size_t c = 0; c < job.m; c += 3) {
            const size_t cols = smaller<size_t>(3, job.m - c);
            for (size_t i = 0; i < count; i += 2) {
                const float *w = rows + i * stride, *at = x + c * x_stride;
                float* y = job.y + c * job.y_stride + r + i;
                auto tile = [&](auto kernel) { kernel(w, stride, at, x_stride, k, y, job.y_stride); };
                if (count - i == 1) {
                    if (cols == 3) tile(dense_tile<1, 3>);
                    if (cols == 2) tile(dense_tile<1, 2>);
                    if (cols == 1) tile(dense_tile<1, 1>);
                } else {
                    if (cols == 3) tile(dense_tile<2, 3>);
                    if (cols == 2) tile(dense_tile<2, 2>);
                    if (cols == 1) tile(dense_tile<2, 1>);
                }
            }
        }
    }
}

template <class T>
void dense(const Job& job, const float* x, size_t x_stride) {
    if (job.m == 1) dense_gemv<T>(job, x);
    else dense_gemm<decode_dense<T>>(job, x, x_stride);
}

}  // namespace cortiq::CORTIQ_KERNELS

// The table of an instruction set with vectors, which provides the quantized activations, q4_gemv, q8_gemv, the panels
// and kFewQ4, kFewQ8: from so many activation rows on a panel pays.
#pragma once
#include "kernels/columns.h"
#include "kernels/dense.h"
#include "kernels/gemm.h"
#include "kernels/table.h"

namespace cortiq::CORTIQ_KERNELS {

namespace {

void q4_tiled(const Job& job, const u8* act) {
    if (job.m >= kFewQ4) return gemm<Q4Panel>(job, act);
    by_columns<q4_gemv<1>, q4_gemv<2>, q4_gemv<3>, q4_gemv<4>>(job, act, act_nbytes(job.w.cols));
}

void q8_row(const Job& job, const u8* act) {
    if (job.m >= kFewQ8) return gemm<Q8Panel>(job, act);
    by_columns<q8_gemv<1>, q8_gemv<2>, q8_gemv<3>, q8_gemv<4>>(job, act, act_nbytes(job.w.cols));
}

void fold(const MatrixView& w, const float* x, float* out) {
    const u8* field = column_field(w);
    const size_t full = w.cols / 16 * 16;
    for (size_t k = 0; k < full; k += 16) store16(out + k, mul16(load16(x + k), weights16(F16(), field + 2 * k)));
    for (size_t k = full; k < w.cols; k++) out[k] = x[k] * F16::value(field + 2 * k);
}

size_t scratch_nbytes(size_t k, size_t) {
    const size_t dense = dense_scratch(k), q4 = gemm_scratch<Q4Panel>(k), q8 = gemm_scratch<Q8Panel>(k);
    return dense > q4 ? (dense > q8 ? dense : q8) : (q4 > q8 ? q4 : q8);
}

constexpr Entry kEntries[] = {
    {DType::f32, nullptr, dense<F32>, decode_dense<F32>},
    {DType::f16, nullptr, dense<F16>, decode_dense<F16>},
    {DType::bf16, nullptr, dense<BF16>, decode_dense<BF16>},
    {DType::q8_row, q8_row, dense_gemm<Q8Row::decode>, Q8Row::decode},
    {DType::q8_2f, q8_row, dense_gemm<decode_any<kIsa>>, decode_any<kIsa>},
    {DType::q4_tiled, q4_tiled, dense_gemm<Q4Tiled::decode>, Q4Tiled::decode},
};
constexpr Entry kOther = {{}, nullptr, dense_gemm<decode_any<kIsa>>, decode_any<kIsa>};

}  // namespace

bool is_fast(DType dtype) { return find(kEntries, dtype) != nullptr; }
const Entry& entry(DType dtype) { return is_fast(dtype) ? *find(kEntries, dtype) : kOther; }

extern const Kernels kKernels;
const Kernels kKernels = {kIsa, is_fast, takes_int8,  act_nbytes, quantize,       dequantize,
                          folds, fold,    linear_int8, linear_f32, scratch_nbytes, gather};

}  // namespace cortiq::CORTIQ_KERNELS

// Linear operators in plain C++: the definition the vector versions are compared with, and the fallback.
#include <cmath>

#define CORTIQ_KERNELS kernels_scalar
#include "kernels/table.h"

namespace cortiq::CORTIQ_KERNELS {

namespace {

// A quantized row: int8 values padded to whole groups, then one scale per group.
struct Act {
    explicit Act(size_t k) : groups(div_up(k, kGroup)) {}
    i8* quants(u8* act) const { return reinterpret_cast<i8*>(act); }
    float* scales(u8* act) const { return reinterpret_cast<float*>(act + groups * kGroup); }
    const i8* quants(const u8* act) const { return reinterpret_cast<const i8*>(act); }
    const float* scales(const u8* act) const { return reinterpret_cast<const float*>(act + groups * kGroup); }
    size_t nbytes() const { return round_up(groups * (kGroup + sizeof(float)), 64); }
    size_t groups;
};

size_t act_nbytes(size_t k) { return Act(k).nbytes(); }

void quantize(const float* x, size_t k, size_t g0, size_t g1, u8* act) {
    const Act a(k);
    for (size_t g = g0; g < g1; g++) {
        const size_t first = g * kGroup, count = smaller(kGroup, k - first);
        i8* q = a.quants(act) + first;
        std::memset(q, 0, kGroup);
        std::uint32_t top = 0;  // |x| compared as integers orders NaN above infinity above the rest
        for (size_t i = 0; i < count; i++) {
            const std::uint32_t bits = load_as<std::uint32_t>(x + first + i) & 0x7fffffffu;
            top = bits > top ? bits : top;
        }
        const float largest = load_as<float>(&top);
        float scale = 0;
        if (top >= 0x7f800000u) {
            scale = NAN;
        } else if (largest >= 0x1p-100f) {
            scale = largest / 127.0f;
            const float inverse = 127.0f / largest;
            for (size_t i = 0; i < count; i++) q[i] = i8(std::lrintf(x[first + i] * inverse));
        }
        a.scales(act)[g] = scale;
    }
}

void dequantize(const u8* act, size_t k, float* out) {
    const Act a(k);
    for (size_t i = 0; i < k; i++) out[i] = float(a.quants(act)[i]) * a.scales(act)[i / kGroup];
}

float sum_lanes(const float* lane) {
    const float even = (lane[0] + lane[4]) + (lane[2] + lane[6]), odd = (lane[1] + lane[5]) + (lane[3] + lane[7]);
    return (even + odd) + 0.0f;
}

float dot_q4_tiled(const Q4Tiled& t, size_t r, const Act& a, const u8* act) {
    const u8* p = t.row(r);
    const i8* x = a.quants(act);
    float lane[8] = {};
    for (size_t g = 0; g < t.groups; g++, p += Q4Tiled::kTile, x += kGroup) {
        int dot = 0;
        for (size_t k = 0; k < 16; k++)
            dot += (int(p[2 + k] & 15) - 8) * x[2 * k] + (int(p[2 + k] >> 4) - 8) * x[2 * k + 1];
        const float scale = half_to_float(load_as<std::uint16_t>(p)) * a.scales(act)[g];
        lane[g % 8] = std::fmaf(float(dot), scale, lane[g % 8]);
    }
    return sum_lanes(lane);
}

float dot_q8_row(const Q8Row& t, size_t r, const Act& a, const u8* act) {
    const u8* p = t.row(r);
    const i8* x = a.quants(act);
    float lane[8] = {};
    for (size_t g = 0; g < t.groups; g++, p += kGroup, x += kGroup) {
        const size_t count = smaller(kGroup, t.cols - g * kGroup);
        int dot = 0;
        for (size_t k = 0; k < count; k++) dot += int(i8(p[k])) * x[k];
        lane[g % 8] = std::fmaf(float(dot), a.scales(act)[g], lane[g % 8]);
    }
    return sum_lanes(lane) * t.scale(r);
}

template <class Rows, float (*kDot)(const Rows&, size_t, const Act&, const u8*)>
void int8(const Job& job, const u8* act) {
    const Rows rows(job.w);
    const Act a(job.w.cols);
    for (size_t i = 0; i < job.m; i++)
        for (size_t r = job.r0; r < job.r1; r++)
            job.y[i * job.y_stride + r] = kDot(rows, r, a, act + i * a.nbytes());
}

float dot_f32(const float* w, const float* x, size_t k) {
    float lane[16] = {};
    for (size_t i = 0; i < k; i++) lane[i % 16] = std::fmaf(w[i], x[i], lane[i % 16]);
    for (size_t i = 0; i < 8; i++) lane[i] += lane[i + 8];
    return sum_lanes(lane);
}

void f32(const Job& job, const float* x, size_t x_stride) {
    float* row = reinterpret_cast<float*>(job.scratch.data);
    for (size_t r = job.r0; r < job.r1; r++) {
        gather(job.w, r, row);
        for (size_t i = 0; i < job.m; i++) job.y[i * job.y_stride + r] = dot_f32(row, x + i * x_stride, job.w.cols);
    }
}

void fold(const MatrixView& w, const float* x, float* out) {
    for (size_t k = 0; k < w.cols; k++) out[k] = x[k] * F16::value(column_field(w) + 2 * k);
}

size_t scratch_nbytes(size_t k, size_t) { return round_up(k * sizeof(float), 64); }

constexpr Entry kEntries[] = {
    {DType::f32, nullptr, f32, decode_dense<F32>},
    {DType::f16, nullptr, f32, decode_dense<F16>},
    {DType::bf16, nullptr, f32, decode_dense<BF16>},
    {DType::q8_row, int8<Q8Row, dot_q8_row>, f32, Q8Row::decode},
    {DType::q8_2f, int8<Q8Row, dot_q8_row>, f32, decode_any<Isa::scalar>},
    {DType::q4_tiled, int8<Q4Tiled, dot_q4_tiled>, f32, Q4Tiled::decode},
};
constexpr Entry kOther = {{}, nullptr, f32, decode_any<Isa::scalar>};

}  // namespace

bool is_fast(DType dtype) { return find(kEntries, dtype) != nullptr; }
const Entry& entry(DType dtype) { return is_fast(dtype) ? *find(kEntries, dtype) : kOther; }

extern const Kernels kKernels;
const Kernels kKernels = {Isa::scalar, is_fast, takes_int8,  act_nbytes, quantize,       dequantize,
                          folds, fold,    linear_int8, linear_f32, scratch_nbytes, gather};

}  // namespace cortiq::CORTIQ_KERNELS

// Compares the AVX-512 linear kernels with the scalar ones, bit for bit, on any processor (see compare.sh).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace cortiq {
namespace kernels_scalar {
extern const Kernels kKernels;
}
namespace kernels_avx512 {
extern const Kernels kKernels;
}
}  // namespace cortiq

using namespace cortiq;

namespace {

std::mt19937 rng(1);

// Bytes of the layouts that are compared (SPEC 3.2).
std::size_t nbytes_of(DType dtype, std::size_t rows, std::size_t cols) {
    switch (dtype) {
        case DType::f32: return 4 * rows * cols;
        case DType::q8_row: return rows * (cols + 2);
        case DType::q8_2f: return rows * (cols + 2) + 2 * cols;
        case DType::q4_tiled: return rows * cols / 32 * 18;
        default: return 2 * rows * cols;
    }
}

std::vector<std::uint8_t> weights(DType dtype, std::size_t rows, std::size_t cols) {
    std::vector<std::uint8_t> bytes(nbytes_of(dtype, rows, cols));
    for (auto& b : bytes) b = std::uint8_t(rng());
    std::normal_distribution<float> normal(0, 0.05f);
    auto put = [&](std::size_t at, int kind) {
        const float value = normal(rng);
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, 4);
        const std::uint16_t half = std::uint16_t(0x2000u + rng() % 0x800u + (rng() % 2 << 15)), top = std::uint16_t(bits >> 16);
        if (kind == 0) std::memcpy(&bytes[at], &bits, 4);
        if (kind == 1) std::memcpy(&bytes[at], &half, 2);
        if (kind == 2) std::memcpy(&bytes[at], &top, 2);
    };
    if (dtype == DType::f32) for (std::size_t i = 0; i < bytes.size(); i += 4) put(i, 0);
    if (dtype == DType::f16) for (std::size_t i = 0; i < bytes.size(); i += 2) put(i, 1);
    if (dtype == DType::bf16) for (std::size_t i = 0; i < bytes.size(); i += 2) put(i, 2);
    if (dtype == DType::q8_row || dtype == DType::q8_2f) for (std::size_t i = rows * cols; i < bytes.size(); i += 2) put(i, 1);
    if (dtype == DType::q4_tiled) for (std::size_t i = 0; i < bytes.size(); i += 18) put(i, 1);
    return bytes;
}

struct Aligned {
    explicit Aligned(std::size_t n) : data(static_cast<std::uint8_t*>(std::aligned_alloc(64, (n + 127) / 64 * 64))) {}
    ~Aligned() { std::free(data); }
    Aligned(const Aligned&) = delete;
    Aligned& operator=(const Aligned&) = delete;
    std::uint8_t* data;
};

std::vector<float> product(const Kernels& kernels, const MatrixView& w, const std::vector<float>& x, std::size_t m, bool int8) {
    std::vector<float> y(m * w.rows);
    const std::size_t need = kernels.scratch_nbytes(w.cols, m), stride = kernels.act_nbytes(w.cols);
    const Aligned scratch(need), act(m * stride);
    if (!int8) {
        kernels.linear_f32(w, x.data(), w.cols, m, 0, w.rows, y.data(), w.rows, {scratch.data, need});
        return y;
    }
    const std::size_t groups = (w.cols + kGroup - 1) / kGroup;
    std::vector<float> row(w.cols);
    for (std::size_t i = 0; i < m; i++) {
        std::copy_n(x.data() + i * w.cols, w.cols, row.data());
        if (kernels.folds(w.dtype)) kernels.fold(w, x.data() + i * w.cols, row.data());
        kernels.quantize(row.data(), w.cols, 0, groups / 2, act.data + i * stride);
        kernels.quantize(row.data(), w.cols, groups / 2, groups, act.data + i * stride);
    }
    kernels.linear_int8(w, act.data, m, 0, w.rows, y.data(), w.rows, {scratch.data, need});
    return y;
}

}  // namespace

int main() {
    int failures = 0, cases = 0;
    for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q8_row, DType::q8_2f, DType::q4_tiled})
        for (std::size_t cols : {32, 64, 288, 576, 896, 1024, 1536, 4864, 1, 17, 33, 257, 577})
            for (std::size_t rows : {1, 3, 16, 37}) {
                if (dtype == DType::q4_tiled && cols % 32 != 0) continue;
                const std::vector<std::uint8_t> bytes = weights(dtype, rows, cols);
                const MatrixView w = {dtype, bytes.data(), bytes.size(), rows, cols, bytes.data() + bytes.size()};
                for (std::size_t m : {1, 2, 3, 5, 9, 13, 26}) {
                    std::normal_distribution<float> normal;
                    std::vector<float> x(m * cols);
                    for (float& v : x) v = normal(rng) * (rng() % 100 == 0 ? 12.0f : 1.0f);
                    for (bool int8 : {false, true}) {
                        if (!int8 && dtype == DType::q8_2f) continue;  // its rows are decoded with real instructions
                        if (int8 && !kernels_scalar::kKernels.takes_int8(dtype)) continue;
                        cases++;
                        const auto a = product(kernels_scalar::kKernels, w, x, m, int8);
                        const auto b = product(kernels_avx512::kKernels, w, x, m, int8);
                        if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) continue;
                        failures++;
                        std::printf("dtype %d cols %zu rows %zu m %zu int8 %d differs\n", int(dtype), cols, rows, m, int8);
                    }
                }
            }
    std::printf("%d of %d cases differ\n", failures, cases);
    return failures != 0;
}

// Choice of the table of an instruction set, and the sizes matrices must have.
#include <string>

#include "core/error.h"
#include "kernels/kernels.h"

namespace cortiq {

namespace kernels_scalar {
extern const Kernels kKernels;
}
#if defined(__x86_64__)
namespace kernels_avx2 {
extern const Kernels kKernels;
}
namespace kernels_avx512 {
extern const Kernels kKernels;
}
#endif

const Kernels& kernels(Isa isa) {
    switch (isa) {
        case Isa::scalar: return kernels_scalar::kKernels;
#if defined(__x86_64__)
        case Isa::avx2: return kernels_avx2::kKernels;
        case Isa::avx512: return kernels_avx512::kKernels;
#endif
        default: throw Error("UsageError", "isa", std::string("no kernels for ") + isa_name(isa) + " in this build");
    }
}

namespace {

// Every layout served here is a number of equal units per row, plus a constant per row.
struct Size {
    DType dtype;
    std::size_t unit_columns, unit_nbytes, row_nbytes;
};
constexpr Size kSizes[] = {
    {DType::f32, 1, 4, 0},    {DType::f16, 1, 2, 0},          {DType::bf16, 1, 2, 0},
    {DType::q8_row, 1, 1, 2}, {DType::q4_tiled, kGroup, 18, 0},
};

}  // namespace

std::size_t matrix_nbytes(DType dtype, std::size_t rows, std::size_t cols) {
    for (const Size& size : kSizes) {
        if (size.dtype != dtype) continue;
        if (rows == 0 || cols == 0 || cols % size.unit_columns != 0)
            throw Error("Bounds", "shape",
                        "columns must be a positive multiple of " + std::to_string(size.unit_columns) + ", rows positive");
        std::size_t row = 0, all = 0;
        if (__builtin_mul_overflow(cols / size.unit_columns, size.unit_nbytes, &row) ||
            __builtin_add_overflow(row, size.row_nbytes, &row) || __builtin_mul_overflow(row, rows, &all))
            throw Error("Bounds", "shape", "the size of a matrix overflows");
        return all;
    }
    throw Error("UnsupportedFeature", "dtype",
                "no matrix product for dtype " + std::to_string(static_cast<int>(dtype)));
}

}  // namespace cortiq

// Choice of the table of an instruction set, and the sizes matrices must have.
#include <string>

#include "core/error.h"
#include "kernels/kernels.h"
#include "layouts/codec.h"

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

void check_matrix(DType dtype, std::size_t rows, std::size_t cols, std::size_t nbytes) {
    const PayloadSize size = payload_size(dtype, rows, cols);
    if (rows == 0 || cols == 0) throw Error("Bounds", "shape", "a matrix must have rows and columns");
    if (size.exact ? nbytes == size.nbytes : nbytes >= size.nbytes) return;
    throw Error("Bounds", "nbytes",
                "a matrix of this shape has " + std::string(size.exact ? "" : "at least ") +
                    std::to_string(size.nbytes) + " bytes, not " + std::to_string(nbytes));
}

}  // namespace cortiq

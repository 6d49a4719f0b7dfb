// Views of memory somebody else owns: mapped tensors. They are validated before they get here.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace cortiq {

// A row-major matrix [rows, cols] in the layout of `dtype`.
struct MatrixView {
    DType dtype = DType::f32;
    const std::uint8_t* data = nullptr;
    std::size_t nbytes = 0;
    std::size_t rows = 0;
    std::size_t cols = 0;
    const std::uint8_t* limit = nullptr;  // end of the mapping: kernels may read beyond the tensor, never beyond this
};

}  // namespace cortiq

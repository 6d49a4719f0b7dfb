// Linear operators for AVX2 with FMA and F16C.
#define CORTIQ_KERNELS kernels_avx2
#include "kernels/avx2/panels.h"
#include "kernels/avx2/q4_tiled.h"
#include "kernels/avx2/q8_row.h"

namespace cortiq::CORTIQ_KERNELS {

constexpr Isa kIsa = Isa::avx2;
constexpr size_t kFewQ4 = 5, kFewQ8 = 5;

}  // namespace cortiq::CORTIQ_KERNELS

#include "kernels/vector_table.h"

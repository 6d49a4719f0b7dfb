// Linear operators for AVX-512 with VNNI and VBMI.
#define CORTIQ_KERNELS kernels_avx512
#include "kernels/avx512/panels.h"
#include "kernels/avx512/q4_tiled.h"
#include "kernels/avx512/q8_row.h"

namespace cortiq::CORTIQ_KERNELS {

constexpr Isa kIsa = Isa::avx512;
constexpr size_t kFewQ4 = 5, kFewQ8 = 4;

}  // namespace cortiq::CORTIQ_KERNELS

#include "kernels/vector_table.h"

// The operators with AVX2, FMA and F16C.
#define CORTIQ_OPS_NS ops_avx2
#include "simd/f32x8_avx2.h"
#include "simd/wide_f32x8.h"
// f32x8 first: the operators below are written over its lanes.
#include "ops/table.h"
#include "ops/tables.h"

namespace cortiq {

const Ops& ops_avx2_table() {
    static const Ops table = ops_avx2::make_table(Isa::avx2);
    return table;
}

}  // namespace cortiq

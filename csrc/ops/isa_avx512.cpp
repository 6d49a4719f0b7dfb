// The operators on AVX-512 processors: the eight lanes of AVX2 where sums go across lanes, else sixteen.
#define CORTIQ_OPS_NS ops_avx512
#include "simd/f32x8_avx2.h"
#include "simd/wide_avx512.h"
// f32x8 first: the operators below are written over its lanes.
#include "ops/table.h"
#include "ops/tables.h"

namespace cortiq {

const Ops& ops_avx512_table() {
    static const Ops table = ops_avx512::make_table(Isa::avx512);
    return table;
}

}  // namespace cortiq

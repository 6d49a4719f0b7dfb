// The operators in plain C++: the definition.
#define CORTIQ_OPS_NS ops_scalar
#include "simd/f32x8_scalar.h"
#include "simd/wide_f32x8.h"
// f32x8 first: the operators below are written over its lanes.
#include "ops/table.h"
#include "ops/tables.h"

namespace cortiq {

const Ops& ops_scalar_table() {
    static const Ops table = ops_scalar::make_table(Isa::scalar);
    return table;
}

}  // namespace cortiq

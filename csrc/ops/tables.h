// Where the tables of the instruction sets come from: isa_<name>.cpp.
#pragma once
#include "ops/ops.h"

namespace cortiq {

const Ops& ops_scalar_table();
const Ops& ops_avx2_table();
const Ops& ops_avx512_table();

}  // namespace cortiq

#include "ops/ops.h"

#include "ops/tables.h"

namespace cortiq {

const Ops& ops(Isa isa) {
    switch (isa) {
#if defined(__x86_64__)
        case Isa::avx512: return ops_avx512_table();
        case Isa::avx2: return ops_avx2_table();
#endif
        default: return ops_scalar_table();
    }
}

}  // namespace cortiq

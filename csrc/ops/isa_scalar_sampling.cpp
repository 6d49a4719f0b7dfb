// The sampler's vocabulary loops, compiled for the baseline.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "ops/sampling_scan_table.h"

namespace cortiq {
namespace sampling_scalar {
namespace {
#include "ops/sampling_scan.h"
}
}  // namespace sampling_scalar

const SamplingScan& sampling_scan_scalar() {
    static constexpr SamplingScan table = {&sampling_scalar::block_maxima, &sampling_scalar::exp_sum,
                                           &sampling_scalar::exp_negative_one};
    return table;
}

}  // namespace cortiq

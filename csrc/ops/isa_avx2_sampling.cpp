// The sampler's vocabulary loops, compiled for AVX2.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "ops/sampling_scan_table.h"

namespace cortiq {
namespace sampling_avx2 {
namespace {
#include "ops/sampling_scan.h"
}
}  // namespace sampling_avx2

const SamplingScan& sampling_scan_avx2() {
    static constexpr SamplingScan table = {&sampling_avx2::block_maxima, &sampling_avx2::exp_sum,
                                           &sampling_avx2::exp_negative_one};
    return table;
}

}  // namespace cortiq

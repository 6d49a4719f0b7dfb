// A few activation rows at a time through kernels made for a fixed number of them.
#pragma once
#include "kernels/rows.h"

namespace cortiq::CORTIQ_KERNELS {

using Int8Kernel = void (*)(const Job& job, const u8* act);

// `stride` is the size of an activation row.
template <Int8Kernel k1, Int8Kernel k2, Int8Kernel k3, Int8Kernel k4>
void by_columns(const Job& job, const u8* act, size_t stride) {
    for (size_t i = 0; i < job.m; i += 4) {
        Job part = job;
        part.y = job.y + i * job.y_stride;
        const u8* x = act + i * stride;
        switch (job.m - i) {
            case 1: k1(part, x); break;
            case 2: k2(part, x); break;
            case 3: k3(part, x); break;
            default: k4(part, x);
        }
    }
}

}  // namespace cortiq::CORTIQ_KERNELS

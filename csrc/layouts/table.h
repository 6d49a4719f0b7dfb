// The table of an instruction set: isa_<name>.cpp names its namespace and the floats in a vector.
#pragma once
#include "layouts/codec.h"
#include "layouts/q1.h"
#include "layouts/q1s.h"
#include "layouts/q1t.h"
#include "layouts/q2tp.h"
#include "layouts/q4_block.h"
#include "layouts/q4_tiled.h"
#include "layouts/q4tp.h"
#include "layouts/q8_2f.h"
#include "layouts/q8_row.h"
#include "layouts/vbit.h"

namespace cortiq::CORTIQ_CODEC {

const CodecOps& ops() {
    static constexpr CodecOps table = {
        .widen_f16 = widen_f16,
        .widen_bf16 = widen_bf16,
        .absmax_bits = absmax_bits,
        .narrow_f16 = narrow_f16,
        .narrow_bf16 = narrow_bf16,
        .q8_quantize = q8_quantize,
        .q8_decode = q8_decode,
        .q4_encode_plain = q4_encode_plain,
        .q4_encode_best = q4_encode_best,
        .q4_decode = q4_decode,
        .q8_2f_divide = q8_2f_divide,
        .q1_encode = q1_encode,
        .q1t_encode = q1t_encode,
        .q4tp_encode = q4tp_encode,
        .q2tp_encode = q2tp_encode,
        .vbit_scales = vbit_scales,
        .vbit_pack = vbit_pack,
        .q4_block = q4_block_decode,
        .q8_2f = q8_2f_decode,
        .q1 = q1_decode,
        .q1s = q1s_decode,
        .q1t = q1t_decode,
        .q4tp = q4tp_decode,
        .q2tp = q2tp_decode,
        .vbit = vbit_decode<false>,
        .vbit_ro = vbit_decode<true>,
    };
    return table;
}

}  // namespace cortiq::CORTIQ_CODEC

// The codecs for one instruction set: avx512.
#define CORTIQ_CODEC codec_avx512
#define CORTIQ_LANES 16
#include "layouts/codec.h"
#include "layouts/q2tp.h"
#include "layouts/q4_tiled.h"
#include "layouts/q4tp.h"
#include "layouts/q8_row.h"
#include "layouts/vbit.h"

namespace cortiq::CORTIQ_CODEC {

const CodecOps& ops() {
    static constexpr CodecOps table = {widen_f16, widen_bf16, absmax_bits,     narrow_f16,     narrow_bf16,
                                       q8_quantize, q8_decode, q4_encode_plain, q4_encode_best, q4_decode,
                                       q4tp_encode, q4tp_decode, q2tp_encode,     q2tp_decode,    vbit_scales,
                                       vbit_pack,   vbit_decode};
    return table;
}

}  // namespace cortiq::CORTIQ_CODEC

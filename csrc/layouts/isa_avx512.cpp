// The codecs for one instruction set: avx512.
#define CORTIQ_CODEC codec_avx512
#define CORTIQ_LANES 16
#include "layouts/table.h"

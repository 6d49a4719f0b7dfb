// The codecs for one instruction set: avx2.
#define CORTIQ_CODEC codec_avx2
#define CORTIQ_LANES 8
#include "layouts/table.h"

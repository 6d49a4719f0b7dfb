// The codecs for one instruction set: scalar.
#define CORTIQ_CODEC codec_scalar
#define CORTIQ_LANES 4
#include "layouts/table.h"

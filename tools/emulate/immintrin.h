// Stands in for the compiler's header when AVX-512 code is built for a processor without it: SIMDe's portable versions
// over AVX2. The compiler's own 512-bit types step aside under another name.
#pragma once
#define __m512 compiler_m512
#define __m512d compiler_m512d
#define __m512i compiler_m512i
#include_next <immintrin.h>
#undef __m512
#undef __m512d
#undef __m512i
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

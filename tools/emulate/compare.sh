#!/bin/sh
# Builds the AVX-512 kernels with SIMDe's emulation and compares them with the scalar ones on any x86-64 processor with
# AVX2. Needs the header-only library SIMDe (Debian: libsimde-dev). Optional: no part of the build or the test suite.
set -eu
cd "$(dirname "$0")/../.."
out=build/emulate
mkdir -p "$out"
flags="-std=c++20 -O2 -ffp-contract=off -Icsrc -mavx2 -mfma -mf16c -Wno-psabi"
c++ $flags -Itools/emulate -c csrc/kernels/isa_avx512.cpp -o "$out/isa_avx512.o"
c++ -std=c++20 -O2 -ffp-contract=off -Icsrc -c csrc/kernels/isa_scalar.cpp -o "$out/isa_scalar.o"
# Named by the kernels, never run here: the processor has no such instructions.
c++ -std=c++20 -O2 -ffp-contract=off -Icsrc -march=skylake-avx512 -c csrc/layouts/isa_avx512.cpp -o "$out/decoders.o"
c++ -std=c++20 -O2 -ffp-contract=off -Icsrc tools/emulate/compare.cpp csrc/core/cpu.cpp csrc/kernels/dispatch.cpp \
    csrc/kernels/isa_avx2.cpp csrc/layouts/codec.cpp csrc/layouts/isa_avx2.cpp csrc/layouts/isa_scalar.cpp "$out/decoders.o" \
    "$out/isa_avx512.o" "$out/isa_scalar.o" -mavx2 -mfma -mf16c -o "$out/compare"
"$out/compare"

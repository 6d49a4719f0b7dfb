#!/bin/sh
# Builds the native core in place (src/cortiq/_native*.so), recompiling only what changed.
# usage: tools/build_native.sh [cmake options, e.g. -DCORTIQ_SANITIZE=ON]
set -eu
cd "$(dirname "$0")/.."
cmake -S . -B build/dev -G Ninja "-DPython_EXECUTABLE=$(command -v python3)" "$@" >/dev/null
cmake --build build/dev
# By rename: a process that has the old one mapped keeps it.
for built in build/dev/_native*.so; do
    cp -f "$built" "src/cortiq/.${built##*/}.new" && mv -f "src/cortiq/.${built##*/}.new" "src/cortiq/${built##*/}"
done

#!/usr/bin/env python3
"""Puts ten mistakes into the code, one after the other, and says how long fuzzing takes to find each.

    python tools/fuzz_seeded.py [--seconds 60]

Needs clang with libFuzzer for the native ones. Works on a copy in build/seeded; exits with 1 when two are not found.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "seeded"
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tests", "python")]

from fuzz.seeded import BUGS, NATIVE_BUGS, Bug, NativeBug, find  # noqa: E402 - needs the path
from fuzz.targets import native_seeds  # noqa: E402

MOST = 100_000  # mutants
ALLOWED = 1
CONTROL_SECONDS = 10


def main() -> int:
    parser = argparse.ArgumentParser(description="Find the mistakes of tests/fuzz/seeded.py.")
    parser.add_argument("--seconds", type=int, default=60, help="for each native mistake, after compiling")
    parser.add_argument("--compiler", default="clang++-14" if shutil.which("clang++-14") else "clang++")
    options = parser.parse_args()
    found = [tell(bug.name, *find_in_python(bug)) for bug in BUGS]
    for folder in ("csrc", "CMakeLists.txt"):
        copy(folder)
    build(options.compiler)
    if run_harness(CONTROL_SECONDS)[0]:
        raise SystemExit("something is found without a mistake")
    found += [tell(bug.name, *find_in_native(bug, options)) for bug in NATIVE_BUGS]
    print(f"{sum(found)} of {len(found)} found")
    return 0 if found.count(False) <= ALLOWED else 1


def tell(name: str, seen: bool, seconds: float) -> bool:
    print(f"{name}: {f'found after {seconds:.1f} s' if seen else 'not found'}", flush=True)
    return seen


def find_in_python(bug: Bug) -> tuple[bool, float]:
    started = time.monotonic()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        bug.put(patch)
        seen = find(bug, Path(folder) / "mutant.cmf", MOST) is not None
    return seen, time.monotonic() - started


def find_in_native(bug: NativeBug, options: argparse.Namespace) -> tuple[bool, float]:
    """Compile the harness with the mistake, run it, and take the mistake out again."""
    path = WORK / "csrc" / bug.path
    whole = path.read_text()
    path.write_text(whole.replace(bug.old, bug.new))
    try:
        build(options.compiler)
        return run_harness(options.seconds)
    finally:
        path.write_text(whole)


def run_harness(most: int) -> tuple[bool, float]:
    """Whether the sanitizers or the harness itself have reported something within ``most`` seconds, and when."""
    with tempfile.TemporaryDirectory() as folder:
        for i, data in enumerate(native_seeds("decode")):
            (Path(folder) / str(i)).write_bytes(data)
        harness = [WORK / "build" / "fuzz_decode", folder, f"-max_total_time={most}", "-max_len=1024", "-seed=1"]
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=8"}
        started = time.monotonic()
        run = subprocess.run(harness, cwd=folder, env=environment, capture_output=True, check=False)
    seconds = time.monotonic() - started
    if (run.returncode != 0) != (b"\nSUMMARY: " in run.stderr):
        raise RuntimeError(run.stderr.decode(errors="replace")[-2000:])
    return run.returncode != 0, seconds


def copy(name: str) -> None:
    """Into the working folder; what is the same keeps its time, so that it is not compiled again."""
    for source in sorted(ROOT.glob(f"{name}/**/*")) or [ROOT / name]:
        target = WORK / source.relative_to(ROOT)
        if source.is_file() and (not target.exists() or target.read_bytes() != source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def build(compiler: str) -> None:
    options = ["-G", "Ninja", "-DCORTIQ_FUZZ=ON", f"-DCMAKE_CXX_COMPILER={compiler}"]
    for command in (["cmake", "-S", WORK, "-B", WORK / "build", *options], ["cmake", "--build", WORK / "build"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())

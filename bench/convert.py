#!/usr/bin/env python3
"""What a conversion costs: time against reading the source and copying the result, memory, and the threads' trace.

    bench/convert.py SOURCE [--quant DTYPE] [--encoder best|plain] [--rounds N]

A round is a conversion in a child process and, right before and after it, what any conversion must do at least: read
the source, write a file of the result's size and sync it. Reported is the median of their ratios. Memory is read from
the kernel while the child works: anonymous memory, and resident memory less the mapped input.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FIELDS = ("VmRSS", "RssAnon")
CHUNK = 4 << 20
CHILD = """
import sys, time
from pathlib import Path
from cortiq.convert import ConvertOptions, convert
from cortiq.quantize import parse_dtype
source, output, quant, encoder, threads = sys.argv[1:]
options = ConvertOptions(quant=parse_dtype(quant), encoder=encoder, threads=int(threads), force=True)
begun = time.perf_counter()
convert(Path(source), Path(output), options)
print(time.perf_counter() - begun)
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One conversion: seconds of the call, largest value of every field of FIELDS in bytes."""

    seconds: float
    peak: dict[str, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--quant", default="q4_tiled")
    parser.add_argument("--encoder", choices=("best", "plain"), default="best")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    size = sum(path.stat().st_size for path in weights(given.source))
    digests = set()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        output = Path(folder) / "model.cmf"
        for threads in (1, 2):
            runs, ratios = [], []
            for _ in range(given.rounds):
                if not output.exists():
                    convert(given, output, threads)
                before = least(given.source, output)
                runs.append(convert(given, output, threads))
                ratios.append((before + least(given.source, output)) / 2 / runs[-1].seconds)
            digests.add(hashlib.sha256(output.read_bytes()).hexdigest())
            report(threads, runs, ratios, size, output.stat().st_size)
    print("the same bytes" if len(digests) == 1 else "DIFFERENT BYTES")
    return 0 if len(digests) == 1 else 1


def report(threads: int, runs: list[Run], ratios: list[float], read: int, written: int) -> None:
    seconds = statistics.median(run.seconds for run in runs)
    anonymous = max(run.peak["RssAnon"] for run in runs)
    resident = max(run.peak["VmRSS"] for run in runs)
    print(
        f"{threads} threads: {seconds:.2f} s for {read / 1e6:.0f} MB in, {written / 1e6:.0f} MB out; read and copy / "
        f"convert {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}); peak anonymous "
        f"{anonymous / 1e6:.0f} MB, resident {resident / 1e6:.0f} MB",
        flush=True,
    )


def least(source: Path, output: Path) -> float:
    """Seconds to read the source, and to write and sync a file of the output's size."""
    begun = time.perf_counter()
    buffer = bytearray(CHUNK)
    for path in weights(source):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    left = output.stat().st_size
    with output.with_suffix(".copy").open("wb", buffering=0) as file:
        while left:
            left -= file.write(memoryview(buffer)[: min(left, CHUNK)])
        os.fsync(file.fileno())
    return time.perf_counter() - begun


def convert(given: argparse.Namespace, output: Path, threads: int) -> Run:
    arguments = [str(given.source), str(output), given.quant, given.encoder, str(threads)]
    peak = dict.fromkeys(FIELDS, 0)
    with subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True) as child:
        while child.poll() is None:
            for name, value in memory(child.pid).items():
                peak[name] = max(peak[name], value)
            time.sleep(0.005)
        assert child.stdout is not None
        printed = child.stdout.read()
    if child.returncode:
        raise SystemExit(child.returncode)
    return Run(float(printed), peak)


def memory(pid: int) -> dict[str, int]:
    """Fields of FIELDS of a process, in bytes; those that are not there any more are left out."""
    found = {}
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in FIELDS:
                found[name] = int(value.split()[0]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return found


def weights(source: Path) -> list[Path]:
    """The GGUF, or the weight files of a folder."""
    return [source] if source.is_file() else sorted(source.glob("*.safetensors"))


if __name__ == "__main__":
    sys.exit(main())

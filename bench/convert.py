#!/usr/bin/env python3
"""What a conversion costs: memory beyond the mapped input, time, and whether the threads leave a trace in the bytes.

    bench/convert.py SOURCE [--quant DTYPE]

Memory is read from the kernel while a child process converts: anonymous memory, and resident memory less the input.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIELDS = ("VmHWM", "VmRSS", "RssAnon", "RssFile")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--quant", default="q4_tiled")
    given = parser.parse_args()
    size = nbytes(given.source)
    digests = set()
    with tempfile.TemporaryDirectory() as folder:
        for threads in (1, 2):
            output = Path(folder) / f"{threads}.cmf"
            seconds, peak = convert(given.source, output, given.quant, threads)
            digests.add(hashlib.sha256(output.read_bytes()).hexdigest())
            print(
                f"{threads} threads: {seconds:.1f} s, {output.stat().st_size / 1e6:.0f} MB written; "
                f"peak anonymous {peak['RssAnon'] / 1e6:.0f} MB, resident {peak['VmRSS'] / 1e6:.0f} MB, "
                f"resident less the input of {size / 1e6:.0f} MB {(peak['VmRSS'] - size) / 1e6:.0f} MB",
                flush=True,
            )
    print("the same bytes" if len(digests) == 1 else "DIFFERENT BYTES")
    return 0 if len(digests) == 1 else 1


def convert(source: Path, output: Path, quant: str, threads: int) -> tuple[float, dict[str, int]]:
    """Seconds, and the largest value of every field of FIELDS in bytes."""
    command = [sys.executable, "-m", "cortiq", "convert", str(source), str(output)]
    command += ["--quant", quant, "--threads", str(threads), "--quiet"]
    peak = dict.fromkeys(FIELDS, 0)
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            for name, value in memory(child.pid).items():
                peak[name] = max(peak[name], value)
            time.sleep(0.01)
    if child.returncode:
        raise SystemExit(child.returncode)
    return time.perf_counter() - begun, peak


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


def nbytes(source: Path) -> int:
    """Bytes of a file, or of the weights of a folder."""
    if source.is_file():
        return source.stat().st_size
    return sum(path.stat().st_size for path in source.glob("*.safetensors"))


if __name__ == "__main__":
    sys.exit(main())

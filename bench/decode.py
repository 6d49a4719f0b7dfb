#!/usr/bin/env python3
"""What a generated token costs: the share of the memory's speed it reaches, and the share of it that is Python.

    bench/decode.py [--threads N]... MODEL.cmf...

Reading: weight bytes of a token over the time of a step, divided by the raw-read probe taken right before and after;
median of the repetitions. Python: time of a step that is not spent in the native core, for the decode loop alone and
for a whole generation with sampling and text.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cortiq import _native
from cortiq.engine.model import Model, load

PROBE = np.ones(256 << 20, dtype=np.uint8)
TOKENS = 128


class Timed:
    """A plan that adds up the time of its steps, in nanoseconds."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self.spent = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def step(self, *arguments: Any) -> Any:
        begun = time.perf_counter_ns()
        try:
            return self._plan.step(*arguments)
        finally:
            self.spent += time.perf_counter_ns() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.cmf")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=9)
    given = parser.parse_args()
    for path in given.models:
        for threads in given.threads:
            with load(path, threads=threads, context=2 * TOKENS) as model:
                report(model, given.repetitions)
    return 0


def report(model: Model, repetitions: int) -> None:
    """One line a model and thread count."""
    threads = model.info.threads
    timed = Timed(model.runner._plan)
    nbytes = timed.stats()["weight_bytes_per_token"]
    model.runner._plan = timed
    shares, rates, loop, whole = [], [], [], []
    for _ in range(repetitions):
        before = probe(threads)
        seconds, native = decode(model, timed)
        after = probe(threads)
        rates.append(TOKENS / seconds)
        shares.append(TOKENS * nbytes / seconds / ((before + after) / 2))
        loop.append(1 - native / seconds)
        timed.spent = 0
        begun = time.perf_counter()
        model.generate("Once", max_tokens=TOKENS, temperature=0.7, ignore_eos=True, seed=1)
        whole.append(1 - timed.spent / 1e9 / (time.perf_counter() - begun))
    print(
        f"{model.path.name:40} {threads} threads: {statistics.median(rates):7.1f} tok/s, "
        f"{statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f}) of raw read; "
        f"Python {statistics.median(loop):.1%} of a step, {statistics.median(whole):.1%} with sampling and text",
        flush=True,
    )


def decode(model: Model, timed: Timed) -> tuple[float, float]:
    """Seconds of TOKENS steps, and those of them in the native core."""
    with model.runner.sequence() as sequence:
        sequence.reset()
        sequence.prefill([1])
        timed.spent = 0
        begun = time.perf_counter()
        for token in range(TOKENS):
            sequence.decode(token)
        return time.perf_counter() - begun, timed.spent / 1e9


def probe(threads: int) -> float:
    """Bytes a second that ``threads`` threads read: the best of three passes over 256 MiB."""
    return PROBE.nbytes / min(_native.read_seconds(PROBE, threads) for _ in range(3))


if __name__ == "__main__":
    sys.exit(main())

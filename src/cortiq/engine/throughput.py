"""Speed of a model, measured and reported as llama-bench does.

``pp N`` is one prompt of N tokens, ``tg N`` are N steps of one token each, both from a context of ``depth`` tokens.
Tokens are random ids; tokenizing and sampling are not in the timing. One run to warm up, then ``repetitions``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import prod
from typing import Any

import numpy as np

from cortiq.engine.model import Model
from cortiq.engine.sequence import PlanSequence
from cortiq.errors import UsageError
from cortiq.native import core

Row = dict[str, Any]
_SEED = 20_240_917  # any fixed number: the same ids in every run


@dataclass(frozen=True, slots=True)
class Test:
    """What one row measures: ``n_prompt`` tokens at once, then ``n_gen`` one by one, behind ``n_depth`` tokens."""

    n_prompt: int
    n_gen: int
    n_depth: int = 0

    @property
    def name(self) -> str:
        """llama-bench's name: ``pp512``, ``tg128``, ``pp512+tg128``, with ``@ d4096`` for a depth."""
        parts = [f"{kind}{n}" for kind, n in (("pp", self.n_prompt), ("tg", self.n_gen)) if n]
        return "+".join(parts) + (f" @ d{self.n_depth}" if self.n_depth else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """Product of prompts, generations and depths, as llama-bench runs it: each ``n_prompt`` alone, each ``n_gen``
    alone, each ``pairs`` together; every one at each depth.
    """

    n_prompt: Sequence[int] = (512,)
    n_gen: Sequence[int] = (128,)
    pairs: Sequence[tuple[int, int]] = ()
    n_depth: Sequence[int] = (0,)
    repetitions: int = 5

    def tests(self) -> list[Test]:
        """All rows, those that measure nothing left out. Raises UsageError for a negative count."""
        wished = [(n, 0) for n in self.n_prompt] + [(0, n) for n in self.n_gen] + list(self.pairs)
        tests = [Test(p, g, depth) for depth in self.n_depth for p, g in wished if p or g]
        if any(min(test.n_prompt, test.n_gen, test.n_depth) < 0 for test in tests) or self.repetitions < 1:
            raise UsageError("counts must not be negative, repetitions at least 1", code="count")
        return tests


def measure(model: Model, plan: Plan, progress: Callable[[Row], None] | None = None) -> list[Row]:
    """One row a test, with llama-bench's JSON names; ``progress`` gets each row when it is done.

    Raises UsageError (``context``), before anything runs, for a test that does not fit the model's context.
    """
    tests = plan.tests()
    for test in tests:
        need = test.n_depth + test.n_prompt + test.n_gen
        if need > model.context:
            raise UsageError(
                f"{test.name} does not fit the context", code="context", expected=f"at most {model.context}", found=need
            )
    common = _describe(model)
    rows = []
    for test in tests:
        started = datetime.now(UTC)
        samples = _samples(model, test, plan.repetitions)
        row = {**common, **_row(test, samples), "test_time": started.strftime("%Y-%m-%dT%H:%M:%SZ")}
        rows.append(row)
        if progress is not None:
            progress(row)
    return rows


def _samples(model: Model, test: Test, repetitions: int) -> list[int]:
    """Nanoseconds of each repetition, after a warm-up of the same prompt and one generated token."""
    ids = np.random.default_rng(_SEED).integers(0, model.vocab_size, test.n_depth + test.n_prompt + test.n_gen)
    if model.file.tokenizer_json is not None and model.tokenizer.prefix_ids:
        ids[0] = model.tokenizer.prefix_ids[0]
    tokens = [int(token) for token in ids]
    depth, rest = tokens[: test.n_depth], tokens[test.n_depth :]
    prompt, generated = rest[: test.n_prompt], rest[test.n_prompt :]
    with model.runner.sequence() as sequence:
        _run(sequence, depth, prompt, generated[:1])
        return [_run(sequence, depth, prompt, generated) for _ in range(repetitions)]


def _run(sequence: PlanSequence, depth: list[int], prompt: list[int], generated: list[int]) -> int:
    if depth:
        if sequence.rewind([*depth, 0]) < len(depth):
            sequence.reset()
            sequence.prefill(depth)
    else:
        sequence.reset()
    begun = time.perf_counter_ns()
    if prompt:
        sequence.prefill(prompt)
    for token in generated:
        sequence.decode(token)
    return time.perf_counter_ns() - begun


def _row(test: Test, samples: list[int]) -> dict[str, Any]:
    count = test.n_prompt + test.n_gen
    rates = [count * 1e9 / sample for sample in samples]
    several = len(samples) > 1
    return {
        "test": test.name,
        "n_prompt": test.n_prompt,
        "n_gen": test.n_gen,
        "n_depth": test.n_depth,
        "avg_ns": round(statistics.fmean(samples)),
        "stddev_ns": round(statistics.stdev(samples)) if several else 0,
        "avg_ts": statistics.fmean(rates),
        "stddev_ts": statistics.stdev(rates) if several else 0.0,
        "samples_ns": samples,
        "samples_ts": rates,
    }


def _describe(model: Model) -> dict[str, Any]:
    """What the rows of one model share."""
    info, file = model.info, model.file
    weights = [entry for entry in file.tensors.values() if not entry.name.startswith("skill.") and entry.dtype != 6]
    parameters = sum(prod(entry.shape) for entry in weights)
    cache = "f32" if info.mode == "exact" else "f16"
    return {
        "build_commit": "",
        "cpu_info": core.cpu_model_name(),
        "backends": "CPU",
        "isa": info.isa,
        "mode": info.mode,
        "model_filename": str(file.path),
        "model_type": f"{file.arch.arch_name} {file.header.quant_type}",
        "model_size": sum(entry.nbytes for entry in weights),
        "model_n_params": parameters,
        "dir_hash": f"{file.dir_hash:016x}",
        "n_batch": info.max_tokens,
        "n_ubatch": info.max_tokens,
        "n_threads": info.threads,
        "type_k": cache,
        "type_v": cache,
        "n_gpu_layers": 0,
        "use_mmap": True,
    }

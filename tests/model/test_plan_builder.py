"""What is emitted: every tensor and buffer registered once, in the order of the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import cortiq.container
from builders.tiny import Tiny, write_tiny
from cortiq import _native
from cortiq.model.capabilities import describe
from cortiq.model.plan_builder import PlanBuilder


class Recorder:
    """Takes the place of a native plan and writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.handles = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*args: Any, **kwargs: Any) -> int:
            self.calls.append((name, kwargs or {"args": args}))
            self.handles += 1
            return self.handles - 1

        return call

    def named(self, name: str) -> list[dict[str, Any]]:
        return [kwargs for called, kwargs in self.calls if called == name]


def build(path: Path, tiny: Tiny) -> Recorder:
    recorder = Recorder()
    with cortiq.container.open(write_tiny(path, tiny)) as file:
        PlanBuilder(cast(_native.Plan, recorder), file, describe(file.arch, file.tensors)).build()
    return recorder


def test_the_order_of_a_plain_model(tmp_path: Path) -> None:
    recorder = build(tmp_path / "m.cmf", Tiny(layers=2))
    ops = [name for name, _ in recorder.calls if name not in ("tensor", "vector", "buffer", "kv_layer")]
    mixer = ["rmsnorm", "linear", "rope_append", "attention", "linear"]
    last = [*mixer[:4], "select", "linear"]
    ffn = ["rmsnorm", "glu", "linear"]
    assert ops == ["embed", *mixer, *ffn, *last, *ffn, "rmsnorm", "logits", "finish"]


def test_a_sandwich_goes_through_a_buffer_of_its_own(tmp_path: Path) -> None:
    recorder = build(tmp_path / "m.cmf", Tiny(layers=1, sandwich=True))
    (residual,) = (kwargs["out"] for kwargs in recorder.named("embed"))
    linears = recorder.named("linear")
    assert not any(kwargs["accumulate"] for kwargs in linears)
    assert all(segment[2] != residual for kwargs in linears for segment in kwargs["segments"])
    assert [kwargs["accumulate"] for kwargs in recorder.named("rmsnorm")] == [False, True, False, True, False]


@pytest.mark.parametrize("tied", [True, False])
def test_everything_is_registered_once(tmp_path: Path, tied: bool) -> None:
    recorder = build(tmp_path / "m.cmf", Tiny(layers=3, tied=tied))
    assert len(recorder.named("tensor")) == 3 * 7 + (1 if tied else 2)
    assert len({kwargs["address"] for kwargs in recorder.named("tensor")}) == len(recorder.named("tensor"))
    assert len(recorder.named("kv_layer")) == 3
    # Residual, normed, q, k, v, mixed, feed-forward.
    assert len(recorder.named("buffer")) == 7
    # Two norms a layer, the last norm, one table of frequencies.
    assert len(recorder.named("vector")) == 3 * 2 + 1 + 1


def test_vectors_are_f32_and_flat(tmp_path: Path) -> None:
    recorder = build(tmp_path / "m.cmf", Tiny(layers=1, qk_norm=True, qkv_bias=True))
    for kwargs in recorder.named("vector"):
        (values,) = kwargs["args"]
        assert values.dtype == np.float32
        assert values.ndim == 1

"""What a plan refuses while it is described."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cortiq import _native
from cortiq.errors import Bounds, CortiqError, Limit, ShapeMismatch, UnsupportedFeature, UsageError

VALUES = np.ones((8, 16), np.float32)
ADDRESS = VALUES.ctypes.data


def new(**changes: Any) -> _native.Plan:
    options: dict[str, Any] = {
        "isa": "scalar",
        "mode": "exact",
        "threads": 1,
        "max_tokens": 4,
        "max_outputs": 4,
        "context": 32,
        "max_sequences": 1,
        "kv_dtype": "f16",
    }
    return _native.Plan(**(options | changes))


class Parts:
    """A plan with an 8 x 16 matrix and buffers, vectors and a cache to go with it."""

    def __init__(self) -> None:
        self.plan = new()
        self.t = self.plan.tensor(VALUES, 0, 8, 16, ADDRESS, 512, ADDRESS + 512)
        self.b16, self.b8, self.q, self.a = (self.plan.buffer(n) for n in (16, 8, 16, 16))
        self.v16, self.v8, self.v4 = (self.plan.vector(np.ones(n, np.float32)) for n in (16, 8, 4))
        self.k, self.v = self.plan.buffer(8), self.plan.buffer(8)
        self.kv = self.plan.kv_layer(1, 8, 0)
        self.heads: dict[str, Any] = {"heads": 2, "kv_heads": 1, "head_dim": 8}

    def rope(self, **changes: Any) -> None:
        given: dict[str, Any] = {"q": self.q, "k": self.k, "v": self.v, "kv": self.kv, "inv_freq": self.v4}
        self.plan.rope_append(**(given | self.heads | changes))

    def attention(self, **changes: Any) -> None:
        given: dict[str, Any] = {"q": self.q, "out": self.a, "kv": self.kv, "scale": 1.0}
        self.plan.attention(**(given | self.heads | changes))


CASES: dict[str, tuple[type[CortiqError], Callable[[Parts], object]]] = {
    "embed width": (ShapeMismatch, lambda p: p.plan.embed(out=p.b8, weight=p.t)),
    "embed scale": (UsageError, lambda p: p.plan.embed(out=p.b16, weight=p.t, scale=float("inf"))),
    "no tensor": (UsageError, lambda p: p.plan.embed(out=p.b16, weight=7)),
    "no buffer": (UsageError, lambda p: p.plan.embed(out=99, weight=p.t)),
    "norm weight": (ShapeMismatch, lambda p: p.plan.rmsnorm(inp=p.b16, out=p.q, weight=p.v8, eps=1e-6)),
    "norm width": (ShapeMismatch, lambda p: p.plan.rmsnorm(inp=p.b16, out=p.b8, weight=p.v16, eps=1e-6)),
    "norm eps": (UsageError, lambda p: p.plan.rmsnorm(inp=p.b16, out=p.q, weight=p.v16, eps=float("nan"))),
    "norm in place": (
        UsageError,
        lambda p: p.plan.rmsnorm(inp=p.q, out=p.q, weight=p.v16, eps=1e-6, accumulate=True),
    ),
    "no segments": (UsageError, lambda p: p.plan.linear(inp=p.b16, segments=[])),
    "linear cols": (ShapeMismatch, lambda p: p.plan.linear(inp=p.b8, segments=[(p.t, -1, p.q, 0)])),
    "linear bias": (ShapeMismatch, lambda p: p.plan.linear(inp=p.b16, segments=[(p.t, p.v4, p.b8, 0)])),
    "linear column": (ShapeMismatch, lambda p: p.plan.linear(inp=p.b16, segments=[(p.t, -1, p.b8, 1)])),
    "linear overlap": (
        UsageError,
        lambda p: p.plan.linear(inp=p.b16, segments=[(p.t, -1, p.q, 0), (p.t, -1, p.q, 7)]),
    ),
    "linear in place": (UsageError, lambda p: p.plan.linear(inp=p.b16, segments=[(p.t, -1, p.b16, 0)])),
    "rope heads": (ShapeMismatch, lambda p: p.rope(heads=3)),
    "rope layer": (UsageError, lambda p: p.rope(kv=1)),
    "rope frequencies": (ShapeMismatch, lambda p: p.rope(inv_freq=p.v8)),
    "rope norm": (ShapeMismatch, lambda p: p.rope(q_norm=p.v16)),
    "attention first": (UsageError, lambda p: p.attention()),
    "attention heads": (ShapeMismatch, lambda p: (p.rope(), p.attention(kv_heads=2))),
    "append twice": (UsageError, lambda p: (p.rope(), p.rope())),
    "glu act": (UsageError, lambda p: p.plan.glu(inp=p.b16, gate=p.t, up=p.t, out=p.b8, act="relu")),
    "glu width": (ShapeMismatch, lambda p: p.plan.glu(inp=p.b16, gate=p.t, up=p.t, out=p.q, act="silu")),
    "logits before select": (UsageError, lambda p: p.plan.logits(inp=p.b16, weight=p.t)),
    "select twice": (UsageError, lambda p: (p.plan.select(), p.plan.select())),
    "no logits": (UsageError, lambda p: (p.plan.embed(out=p.b16, weight=p.t), p.plan.finish())),
    "after logits": (
        UsageError,
        lambda p: (p.plan.select(), p.plan.logits(inp=p.b16, weight=p.t), p.plan.embed(out=p.b16, weight=p.t)),
    ),
    "no embed": (UsageError, lambda p: (p.plan.select(), p.plan.logits(inp=p.b16, weight=p.t), p.plan.finish())),
    "not finished": (UsageError, lambda p: p.plan.new_sequence()),
    "tensor nbytes": (Bounds, lambda p: p.plan.tensor(None, 0, 8, 16, ADDRESS, 511, ADDRESS + 512)),
    "tensor limit": (Bounds, lambda p: p.plan.tensor(None, 0, 8, 16, ADDRESS, 512, ADDRESS + 511)),
    "tensor address": (Bounds, lambda p: p.plan.tensor(None, 0, 8, 16, 0, 512, ADDRESS + 512)),
    "tensor dtype": (UnsupportedFeature, lambda p: p.plan.tensor(None, 5, 8, 16, ADDRESS, 512, ADDRESS + 512)),
    "tensor columns": (Bounds, lambda p: p.plan.tensor(None, 11, 8, 16, ADDRESS, 72, ADDRESS + 512)),
    "buffer width": (Limit, lambda p: p.plan.buffer(0)),
    "negative window": (UsageError, lambda p: p.plan.kv_layer(1, 8, -1)),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    kind, call = CASES[name]
    with pytest.raises(CortiqError) as error:
        call(Parts())
    assert type(error.value) is kind
    assert error.value.code


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"isa": "mmx"}, UsageError),
        ({"mode": "slow"}, UsageError),
        ({"kv_dtype": "q8"}, UsageError),
        ({"threads": -1}, UsageError),
        ({"threads": 5000}, UsageError),
        ({"max_tokens": 0}, Limit),
        ({"max_outputs": 5}, Limit),
        ({"context": 0}, Limit),
        ({"max_sequences": -3}, UsageError),
    ],
)
def test_refused_options(changes: dict[str, Any], kind: type[CortiqError]) -> None:
    with pytest.raises(CortiqError) as error:
        new(**changes)
    assert type(error.value) is kind


def test_finished_plan_takes_no_more() -> None:
    p = Parts()
    p.plan.embed(out=p.b16, weight=p.t)
    p.plan.select()
    p.plan.logits(inp=p.b16, weight=p.t)
    p.plan.finish()
    with pytest.raises(UsageError):
        p.plan.buffer(8)
    with pytest.raises(UsageError):
        p.plan.finish()

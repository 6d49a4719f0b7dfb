"""A small random decoder, as a native plan and as a NumPy forward pass over the same weights."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cortiq import _native
from cortiq.layouts import layout
from cortiq.ops import attention, embed, ffn, norm, rope

__all__ = ["Shape", "TinyModel", "run"]

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """What the decoder looks like. ``windows`` has one entry per layer, 0 for full attention."""

    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    ffn: int = 96
    vocab: int = 101
    windows: tuple[int, ...] = (0, 40)
    act: str = "silu"
    plus_one: bool = False
    sandwich: bool = False
    qk_norm: bool = False
    bias: bool = False
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    embed_scale: float = 1.0
    dtypes: tuple[str, ...] = ("f32",)  # taken in turn by the matrices
    seed: int = 0


@dataclass
class Matrix:
    """A weight as its payload and as what the payload means."""

    dtype: int
    payload: NDArray[np.uint8]
    values: F32


@dataclass
class TinyModel:
    """Random weights of a :class:`Shape`."""

    shape: Shape
    matrices: dict[str, Matrix] = field(default_factory=dict)
    vectors: dict[str, F32] = field(default_factory=dict)

    def __post_init__(self) -> None:
        s, rng = self.shape, np.random.default_rng(self.shape.seed)
        self._rng = rng
        self._matrix("embed", s.vocab, s.hidden, 1.0)
        for i in range(len(s.windows)):
            q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
            for name, rows, cols in (
                ("q", q, s.hidden),
                ("k", kv, s.hidden),
                ("v", kv, s.hidden),
                ("o", s.hidden, q),
                ("gate", s.ffn, s.hidden),
                ("up", s.ffn, s.hidden),
                ("down", s.hidden, s.ffn),
            ):
                self._matrix(f"{i}.{name}", rows, cols, cols**-0.5)
                self.vectors[f"{i}.{name}_bias"] = (0.1 * rng.standard_normal(rows)).astype(np.float32)
            for name in ("norm1", "norm2", "post1", "post2"):
                self.vectors[f"{i}.{name}"] = self._norm(s.hidden)
            for name in ("q_norm", "k_norm"):
                self.vectors[f"{i}.{name}"] = self._norm(s.head_dim)
        self.vectors["norm"] = self._norm(s.hidden)
        half = s.head_dim // 2
        self.vectors["inv_freq"] = (100.0 ** (-np.arange(half) / half)).astype(np.float32)

    def _norm(self, n: int) -> F32:
        base = 0.0 if self.shape.plus_one else 1.0
        return (base + 0.2 * self._rng.standard_normal(n)).astype(np.float32)

    def _matrix(self, name: str, rows: int, cols: int, spread: float) -> None:
        codec = layout(self.shape.dtypes[len(self.matrices) % len(self.shape.dtypes)])
        values = (spread * self._rng.standard_normal((rows, cols))).astype(np.float32)
        payload = np.frombuffer(codec.encode(values, encoder="plain"), np.uint8)
        self.matrices[name] = Matrix(codec.id, payload, codec.decode(payload, (rows, cols)))

    def plan(
        self,
        *,
        isa: str = "scalar",
        mode: str = "exact",
        threads: int = 1,
        max_tokens: int = 128,
        context: int = 256,
        max_sequences: int = 4,
        kv_dtype: str = "f16",
    ) -> _native.Plan:
        """The decoder as a finished native plan."""
        s = self.shape
        plan = _native.Plan(isa, mode, threads, max_tokens, max_tokens, context, max_sequences, kv_dtype)
        t = {name: _tensor(plan, m) for name, m in self.matrices.items()}
        v = {name: plan.vector(values) for name, values in self.vectors.items()}
        h, x, part = plan.buffer(s.hidden), plan.buffer(s.hidden), plan.buffer(s.hidden)
        q, a = plan.buffer(s.heads * s.head_dim), plan.buffer(s.heads * s.head_dim)
        k, value = plan.buffer(s.kv_heads * s.head_dim), plan.buffer(s.kv_heads * s.head_dim)
        f = plan.buffer(s.ffn)
        dims = {"heads": s.heads, "kv_heads": s.kv_heads, "head_dim": s.head_dim}
        rms = {"eps": 1e-5, "plus_one": s.plus_one}
        out = part if s.sandwich else h
        plan.embed(out=h, weight=t["embed"], scale=s.embed_scale)
        for i, window in enumerate(s.windows):
            kv = plan.kv_layer(s.kv_heads, s.head_dim, window)

            def segment(name: str, to: int, i: int = i) -> tuple[int, int, int, int]:
                return (t[f"{i}.{name}"], v[f"{i}.{name}_bias"] if s.bias else -1, to, 0)

            def qk(name: str, i: int = i) -> int:
                return v[f"{i}.{name}"] if s.qk_norm else -1

            plan.rmsnorm(inp=h, out=x, weight=v[f"{i}.norm1"], **rms)
            plan.linear(inp=x, segments=[segment("q", q), segment("k", k), segment("v", value)])
            plan.rope_append(
                q=q,
                k=k,
                v=value,
                kv=kv,
                inv_freq=v["inv_freq"],
                q_norm=qk("q_norm"),
                k_norm=qk("k_norm"),
                **dims,
                **rms,
            )
            plan.attention(q=q, out=a, kv=kv, scale=s.head_dim**-0.5, softcap=s.attention_softcap, **dims)
            plan.linear(inp=a, segments=[segment("o", out)], accumulate=not s.sandwich)
            if s.sandwich:
                plan.rmsnorm(inp=part, out=h, weight=v[f"{i}.post1"], accumulate=True, **rms)
            plan.rmsnorm(inp=h, out=x, weight=v[f"{i}.norm2"], **rms)
            plan.glu(inp=x, gate=t[f"{i}.gate"], up=t[f"{i}.up"], out=f, act=s.act)
            plan.linear(inp=f, segments=[segment("down", out)], accumulate=not s.sandwich)
            if s.sandwich:
                plan.rmsnorm(inp=part, out=h, weight=v[f"{i}.post2"], accumulate=True, **rms)
        plan.select()
        plan.rmsnorm(inp=h, out=x, weight=v["norm"], **rms)
        plan.logits(inp=x, weight=t["embed"], softcap=s.logit_softcap)
        plan.finish()
        return plan

    def forward(self, tokens: list[int], *, kv_dtype: str = "f16") -> F32:
        """Logits ``[len(tokens), vocab]`` by NumPy, with f32 activations."""
        s = self.shape
        w = {name: m.values for name, m in self.matrices.items()}
        v = self.vectors

        def rms(x: F32, name: str) -> F32:
            return norm.reference(x, v[name], 1e-5, plus_one=s.plus_one)

        def linear(x: F32, name: str) -> F32:
            return x @ w[name].T + (v[f"{name}_bias"] if s.bias else 0)

        h = embed.reference(w["embed"], np.asarray(tokens), scale=s.embed_scale)
        for i, window in enumerate(s.windows):
            x = rms(h, f"{i}.norm1")
            q, k, value = (linear(x, f"{i}.{n}").reshape(len(tokens), -1, s.head_dim) for n in "qkv")
            if s.qk_norm:
                q, k = rms(q, f"{i}.q_norm"), rms(k, f"{i}.k_norm")
            q, k = rope.reference(q, 0, v["inv_freq"]), rope.reference(k, 0, v["inv_freq"])
            a = attention.reference(
                q, k, value, scale=s.head_dim**-0.5, window=window, softcap=s.attention_softcap, kv_dtype=kv_dtype
            )
            a = linear(a.reshape(len(tokens), -1), f"{i}.o")
            h = h + (rms(a, f"{i}.post1") if s.sandwich else a)
            x = rms(h, f"{i}.norm2")
            gated = ffn.reference(x @ w[f"{i}.gate"].T, x @ w[f"{i}.up"].T, act=s.act)
            f = linear(gated, f"{i}.down")
            h = h + (rms(f, f"{i}.post2") if s.sandwich else f)
        return ffn.reference_softcap(rms(h, "norm") @ w["embed"].T, s.logit_softcap)

    def with_shape(self, **changes: object) -> TinyModel:
        """Another model: the same shape but for ``changes``."""
        return TinyModel(replace(self.shape, **changes))


def _tensor(plan: _native.Plan, m: Matrix) -> int:
    address = m.payload.ctypes.data
    rows, cols = m.values.shape
    return plan.tensor(
        owner=m.payload,
        dtype=m.dtype,
        rows=rows,
        cols=cols,
        address=address,
        nbytes=m.payload.nbytes,
        limit=address + m.payload.nbytes,
    )


def run(plan: _native.Plan, vocab: int, batch: list[tuple[int, list[int]]], *, wanted: list[int] | None = None) -> F32:
    """One step over ``(sequence, tokens)`` pairs; logits of all rows, or of the rows ``wanted`` marks."""
    sequences = np.array([s for s, _ in batch], np.int32)
    counts = np.array([len(t) for _, t in batch], np.int32)
    tokens = np.array([i for _, t in batch for i in t], np.int32)
    marks = np.ones(len(tokens), np.uint8) if wanted is None else np.array(wanted, np.uint8)
    out = np.zeros((int(marks.sum()), vocab), np.float32)
    assert plan.step(sequences, counts, tokens, marks, out) == len(out)
    return out

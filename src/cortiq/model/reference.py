"""NumPy forward pass of a whole decoder: the readable definition, and the oracle of the native plan (SPEC 2).

f32 weights and activations; means, exponentials and angles in f64, then rounded to f32. Slow on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import UsageError
from cortiq.model.facts import EMBEDDING, FINAL_NORM, Activation, AttentionFacts, DenseFacts, ModelFacts, RopeFacts

F32 = NDArray[np.float32]
Load = Callable[[str], F32]
Linear = Callable[[F32, str], F32]


def forward(facts: ModelFacts, load: Load, tokens: Sequence[int], linear: Linear | None = None) -> F32:
    """Logits f32 [n, vocab] of every position of one sequence of n ``tokens``.

    ``load`` gives a tensor by name, decoded to f32 in its stored shape. ``linear`` computes x W^T for x f32 [n, cols]
    and a matrix by name, to try another arithmetic. Raises UsageError for an id outside the vocabulary.
    """
    product = linear or (lambda x, name: x @ load(name).T)
    ids = np.asarray(tokens, np.int64)
    if ids.ndim != 1 or ids.size == 0 or ids.min() < 0 or ids.max() >= facts.vocab:
        raise UsageError(f"tokens must be one or more ids from 0 to {facts.vocab - 1}", code="tokens")

    def norm(x: F32, name: str) -> F32:
        return rms_norm(x, load(name).reshape(-1), facts.norm_eps, facts.norm_plus_one)

    h = load(EMBEDDING)[ids] * np.float32(facts.embed_scale)
    for layer in facts.layers:
        mixed = attention(layer.mixer, load, product, norm(h, f"{layer.prefix}input_layernorm.weight"), norm)
        if layer.sandwich:
            mixed = norm(mixed, f"{layer.prefix}post_attention_layernorm.weight")
        h = h + mixed
        out = feed_forward(layer.ffn, product, norm(h, layer.ffn_norm))
        if layer.sandwich:
            out = norm(out, f"{layer.prefix}post_feedforward_layernorm.weight")
        h = h + out
    logits = product(norm(h, FINAL_NORM), facts.head) * np.float32(facts.logit_scale)
    return cap(logits, facts.logit_softcap)


def rms_norm(x: F32, weight: F32, eps: float, plus_one: bool) -> F32:
    """x / sqrt(mean(x^2) + eps) * w over the last axis, or * (1 + w)."""
    mean = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
    inverse = (1.0 / np.sqrt(mean + eps)).astype(np.float32)
    gain: F32 = weight + np.float32(1) if plus_one else weight
    result: F32 = x * inverse * gain
    return result


def rotate(x: F32, rope: RopeFacts) -> F32:
    """Rotary embedding of heads x [n, heads, head_dim] at positions 0 to n - 1."""
    half = len(rope.inverse_frequencies)
    angle = np.arange(x.shape[0], dtype=np.float32)[:, None] * np.asarray(rope.inverse_frequencies, np.float32)
    cos = (np.cos(angle, dtype=np.float64) * rope.attention_factor).astype(np.float32)[:, None, :]
    sin = (np.sin(angle, dtype=np.float64) * rope.attention_factor).astype(np.float32)[:, None, :]
    a, b = x[..., :half], x[..., half : 2 * half]
    turned: F32 = np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], axis=-1)
    return turned


def attention(facts: AttentionFacts, load: Load, linear: Linear, x: F32, norm: Callable[[F32, str], F32]) -> F32:
    """Causal grouped-query attention of x [n, hidden], after ``o_proj``: [n, hidden]."""
    n = x.shape[0]

    def project(part: str, heads: int) -> F32:
        y = linear(x, f"{facts.prefix}{part}_proj.weight")
        if facts.qkv_bias:
            y = y + load(f"{facts.prefix}{part}_proj.bias").reshape(-1)
        return y.reshape(n, heads, facts.head_dim)

    q, k, v = project("q", facts.heads), project("k", facts.kv_heads), project("v", facts.kv_heads)
    if facts.q_norm:
        q = norm(q, f"{facts.prefix}q_norm.weight")
    if facts.k_norm:
        k = norm(k, f"{facts.prefix}k_norm.weight")
    q, k = rotate(q, facts.rope), rotate(k, facts.rope)
    group = facts.heads // facts.kv_heads
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = cap(np.einsum("ihd,jhd->hij", q, k) * np.float32(facts.scale), facts.softcap)
    probabilities = softmax(np.where(visible(n, facts.window), scores, np.float32(-np.inf)))
    mixed: F32 = np.einsum("hij,jhd->ihd", probabilities, v).reshape(n, facts.query_width)
    out = linear(mixed, f"{facts.prefix}o_proj.weight")
    return out + load(f"{facts.prefix}o_proj.bias").reshape(-1) if facts.output_bias else out


def visible(n: int, window: int) -> NDArray[np.bool_]:
    """[n, n]: whether position i (rows) sees j (columns); window 0 is unlimited."""
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    seen: NDArray[np.bool_] = j <= i
    return seen & (i - j < window) if window else seen


def feed_forward(facts: DenseFacts, linear: Linear, x: F32) -> F32:
    """down(act(gate x) * (up x)) of x [n, hidden]."""
    gate = activate(linear(x, f"{facts.prefix}gate_proj.weight"), facts.activation)
    up = linear(x, f"{facts.prefix}up_proj.weight")
    return linear(gate * up, f"{facts.prefix}down_proj.weight")


def activate(x: F32, activation: Activation) -> F32:
    """silu: x / (1 + exp(-x)). gelu_tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    v = x.astype(np.float64)
    if activation == "silu":
        y = v * np.exp(-np.logaddexp(0.0, -v))
    else:
        y = 0.5 * v * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (v + 0.044715 * v**3)))
    result: F32 = y.astype(np.float32)
    return result


def cap(x: F32, limit: float) -> F32:
    """limit * tanh(x / limit), or x for a limit of 0."""
    return (limit * np.tanh(x.astype(np.float64) / limit)).astype(np.float32) if limit else x


def softmax(x: F32) -> F32:
    """Over the last axis."""
    e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    result: F32 = (e / e.sum(axis=-1, keepdims=True)).astype(np.float32)
    return result

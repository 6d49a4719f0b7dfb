"""Softmax attention with grouped queries: facts from the header and the directory (SPEC 2), plan ops."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cortiq.errors import Parse, UnsupportedArch
from cortiq.model.facts import AttentionFacts, RopeFacts
from cortiq.model.rope_table import global_rope, local_rope
from cortiq.model.weights import NO_VECTOR, Weights

if TYPE_CHECKING:
    from cortiq.container import Arch
    from cortiq.model.plan_builder import PlanBuilder

TENSORS = frozenset(
    [f"self_attn.{p}_proj.{kind}" for p in "qkvo" for kind in ("weight", "bias")]
    + ["self_attn.q_norm.weight", "self_attn.k_norm.weight"]
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which layers attend to a window only, and how each kind rotates."""

    local: tuple[bool, ...]
    window: int
    full_rope: RopeFacts
    local_rope: RopeFacts

    @classmethod
    def read(cls, arch: Arch) -> Schedule:
        """Local layers are those tagged SlidingAttention; without any tag those that ``sliding_window_pattern`` p
        leaves out of "every p-th layer is full"; else none. Raises Parse for a window that is missing or not positive.
        """
        tagged = "SlidingAttention" in arch.layer_types
        local = [tag == "SlidingAttention" for tag in arch.layer_types]
        pattern = arch.sliding_window_pattern
        if not tagged and arch.sliding_window is not None and pattern is not None:
            if pattern < 1:
                raise Parse("must be at least 1", code="arch", section="header.arch.sliding_window_pattern")
            local = [(i + 1) % pattern != 0 for i in range(arch.num_layers)]
        if any(local) and (arch.sliding_window is None or arch.sliding_window < 1):
            raise Parse(
                "layers with a sliding window need a positive sliding_window",
                code="arch",
                section="header.arch.sliding_window",
                found=arch.sliding_window,
            )
        full = global_rope(arch)
        return cls(
            local=tuple(local),
            window=arch.sliding_window or 0,
            full_rope=full,
            local_rope=local_rope(arch, tagged=tagged) if any(local) else full,
        )


def read_attention(arch: Arch, weights: Weights, schedule: Schedule, layer: int) -> AttentionFacts:
    """Facts of layer ``layer``.

    Raises MissingTensor and ShapeMismatch by tensor, UnsupportedArch for an output gate inside ``q_proj`` and for a
    query, key or value bias without the other two.
    """
    prefix = f"model.layers.{layer}.self_attn."
    per_layer = arch.attention_heads_per_layer
    heads = arch.num_attention_heads if per_layer is None else per_layer[layer]
    kv_heads, head_dim = arch.num_kv_heads, arch.head_dim
    query_width, kv_width = heads * head_dim, kv_heads * head_dim
    name = f"{prefix}q_proj.weight"
    if weights.shape(name) == (2 * query_width, arch.hidden_size):
        raise UnsupportedArch("q_proj with an output gate is not supported", code="tensor", tensor=name)
    for part, width in (("q", query_width), ("k", kv_width), ("v", kv_width)):
        weights.matrix(f"{prefix}{part}_proj.weight", width, arch.hidden_size)
    weights.matrix(f"{prefix}o_proj.weight", arch.hidden_size, query_width)
    if q_norm := f"{prefix}q_norm.weight" in weights:
        weights.vector(f"{prefix}q_norm.weight", head_dim)
    if k_norm := f"{prefix}k_norm.weight" in weights:
        weights.vector(f"{prefix}k_norm.weight", head_dim)
    if output_bias := f"{prefix}o_proj.bias" in weights:
        weights.vector(f"{prefix}o_proj.bias", arch.hidden_size)
    local = schedule.local[layer]
    return AttentionFacts(
        prefix=prefix,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        window=schedule.window if local else 0,
        rope=schedule.local_rope if local else schedule.full_rope,
        scale=1.0 / math.sqrt(arch.query_pre_attn_scalar or head_dim),
        softcap=arch.attn_logit_softcapping or 0.0,
        qkv_bias=_qkv_bias(weights, prefix, query_width, kv_width),
        output_bias=output_bias,
        q_norm=q_norm,
        k_norm=k_norm,
    )


def _qkv_bias(weights: Weights, prefix: str, query_width: int, kv_width: int) -> bool:
    names = [f"{prefix}{part}_proj.bias" for part in "qkv"]
    present = [name for name in names if name in weights]
    if present and len(present) < len(names):
        raise UnsupportedArch(
            "query, key and value have a bias all three or none", code="tensor", tensor=present[0], found=present
        )
    for name, width in zip(names, (query_width, kv_width, kv_width), strict=True):
        if present:
            weights.vector(name, width)
    return bool(present)


def emit_attention(
    builder: PlanBuilder, facts: AttentionFacts, inp: int, out: int, *, accumulate: bool, last: bool
) -> None:
    """Ops from the normed input buffer to ``out``: projections, q/k norm, rotation, cache, attention, ``o_proj``.

    ``accumulate`` adds to ``out`` instead of replacing it. In the ``last`` mixer of a model nothing behind the
    attention looks at another row, so only rows whose logits are wanted go on.
    """
    plan, prefix = builder.plan, facts.prefix
    heads, kv_heads, head_dim = facts.heads, facts.kv_heads, facts.head_dim
    q = builder.buffer("q", facts.query_width)
    k, v = builder.buffer("k", facts.kv_width), builder.buffer("v", facts.kv_width)
    mixed = builder.buffer("mixed", facts.query_width)

    def segment(part: str, bias: bool, target: int) -> tuple[int, int, int, int]:
        vector = builder.vector(f"{prefix}{part}_proj.bias") if bias else NO_VECTOR
        return builder.matrix(f"{prefix}{part}_proj.weight"), vector, target, 0

    qkv = [segment(part, facts.qkv_bias, target) for part, target in (("q", q), ("k", k), ("v", v))]
    plan.linear(inp=inp, segments=qkv, accumulate=False)
    kv = plan.kv_layer(kv_heads=kv_heads, head_dim=head_dim, window=facts.window)
    plan.rope_append(
        q=q,
        k=k,
        v=v,
        kv=kv,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        inv_freq=builder.frequencies(facts.rope),
        attention_factor=facts.rope.attention_factor,
        q_norm=builder.vector(f"{prefix}q_norm.weight") if facts.q_norm else NO_VECTOR,
        k_norm=builder.vector(f"{prefix}k_norm.weight") if facts.k_norm else NO_VECTOR,
        eps=builder.facts.norm_eps,
        plus_one=builder.facts.norm_plus_one,
    )
    plan.attention(
        q=q,
        out=mixed,
        kv=kv,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        scale=facts.scale,
        softcap=facts.softcap,
    )
    if last:
        plan.select()
    plan.linear(inp=mixed, segments=[segment("o", facts.output_bias, out)], accumulate=accumulate)

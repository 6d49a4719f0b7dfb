"""The ``arch`` object of the header: what the model is (SPEC 2, 2.1, 2.2).

Types, ranges and the relations between numbers are checked here, once. Whether the tensors agree is not known here.
"""

# ruff: noqa: RUF009 - key() and optional() are dataclasses.field
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cortiq.container.records import (
    Place,
    anything,
    array,
    boolean,
    integer,
    key,
    known_keys,
    number,
    optional,
    positive,
    read_record,
    record,
    text,
)
from cortiq.container.strict_json import freeze
from cortiq.errors import Limit, Parse

NORM_STYLES = ("qwen", "gemma")
MAX_LAYER_TYPES = 100_000
_MAX_HEADS = 2**16
_MAX_EXPERTS = 2**20
_COUNT = integer(1)
# For the required numbers the code ``arch`` reaches up to 64 bits, beyond them ``int_range``.
_REQUIRED_COUNT = integer(1, exact_to=2**64 - 1)
_SIZE = integer(0)
_FRACTION = positive(1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """Global YaRN profile of the rotary embedding."""

    factor: float = key(positive())
    original_max_position_embeddings: int = key(_COUNT)
    beta_fast: float = key(positive(), 32.0)
    beta_slow: float = key(positive(), 1.0)
    attention_factor: float = key(positive(), 1.0)
    mscale_all_dim: float | None = optional(number())


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla:
    """Multi-head latent attention."""

    kv_lora_rank: int = key(_COUNT)
    qk_rope_head_dim: int = key(_SIZE)
    qk_nope_head_dim: int = key(_SIZE)
    v_head_dim: int = key(_COUNT)
    q_lora_rank: int | None = optional(_SIZE)
    nope: bool = key(boolean, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mtp:
    """Multi-token prediction head (SPEC 2.1)."""

    num_layers: int = key(_COUNT)
    share_lm_head: bool = key(boolean, True)
    share_embed: bool = key(boolean, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Mixture of experts (SPEC 2.2). ``top_k`` may exceed the experts a layer has; then it is clamped."""

    num_experts: int = key(integer(1, _MAX_EXPERTS))
    top_k: int = key(_COUNT)
    moe_intermediate_size: int = key(_COUNT)
    norm_topk_prob: bool = key(boolean, False)
    shared_expert_intermediate_size: int | None = optional(_SIZE)
    router_sigmoid: bool = key(boolean, False)
    routed_scaling_factor: float | None = optional(number())
    router_resonance: bool = key(boolean, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCore:
    """The recurrent mixer of ``LinearAttention`` layers."""

    kind: str = key(text)
    num_heads: int = key(_COUNT)
    nphase: int | None = optional(_SIZE)
    value_head_dim: int | None = optional(_SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """Every known key of ``arch``, by its name in the file; keys this reader does not know are in ``extra``.

    ``norm_style`` is None when the file states none or one that does not exist: such a file can be looked at but
    not run (``required_norm_style``).
    """

    arch_name: str = key(text)
    hidden_size: int = key(_REQUIRED_COUNT)
    intermediate_size: int = key(_REQUIRED_COUNT)
    num_layers: int = key(_REQUIRED_COUNT)
    num_attention_heads: int = key(_REQUIRED_COUNT)
    num_kv_heads: int = key(_REQUIRED_COUNT)
    head_dim: int = key(_REQUIRED_COUNT)
    vocab_size: int = key(_REQUIRED_COUNT)
    max_position_embeddings: int = key(_REQUIRED_COUNT)
    rms_norm_eps: float = key(positive(1.0))
    rope_theta: float = key(positive(), 10000.0)
    tie_word_embeddings: bool = key(boolean, False)
    partial_rotary_factor: float = key(_FRACTION, 1.0)
    hidden_act: str = key(text, "silu")
    embed_multiplier: float = key(number(), 1.0)
    attn_v_norm: bool = key(boolean, False)
    num_loops: int = key(_COUNT, 1)
    loop_final_norm: bool = key(boolean, False)
    attention_heads_per_layer: tuple[int, ...] | None = optional(array(integer(1, _MAX_HEADS)))
    yarn: Yarn | None = optional(record(Yarn))
    mla: Mla | None = optional(record(Mla))
    mtp: Mtp | None = optional(record(Mtp))
    moe: Moe | None = optional(record(Moe))
    linear_core: LinearCore | None = optional(record(LinearCore))
    linear_conv_kernel_dim: int | None = optional(_SIZE)
    linear_num_key_heads: int | None = optional(_SIZE)
    linear_num_value_heads: int | None = optional(_SIZE)
    linear_key_head_dim: int | None = optional(_SIZE)
    linear_value_head_dim: int | None = optional(_SIZE)
    query_pre_attn_scalar: float | None = optional(positive())
    sliding_window: int | None = optional(_SIZE)
    sliding_window_pattern: int | None = optional(_SIZE)
    rope_local_base_freq: float | None = optional(positive())
    local_partial_rotary_factor: float | None = optional(_FRACTION)
    rope_freq_factors: tuple[float, ...] | None = optional(array(positive()))
    global_head_dim: int | None = optional(_COUNT)
    num_global_kv_heads: int | None = optional(_COUNT)
    global_partial_rotary_factor: float | None = optional(_FRACTION)
    final_logit_softcapping: float | None = optional(positive())
    attn_logit_softcapping: float | None = optional(positive())
    logit_multiplier: float | None = optional(number())
    activation_situ_beta: float | None = optional(number())
    activation_situ_linear_beta: float | None = optional(number())
    kda_gate_lower_bound: float | None = optional(number())
    head_clusters: Any = optional(anything)
    g3n: Any = optional(anything)
    layer_types: tuple[str, ...] = ()
    norm_style: str | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def required_norm_style(self) -> str:
        """``qwen`` (x*w) or ``gemma`` (x*(1+w)). Raises Parse.norm_style when the file does not say which."""
        if self.norm_style is None:
            raise Parse(
                "arch.norm_style is missing or unknown, so the model cannot be run",
                code="norm_style",
                section="header",
                expected=" or ".join(NORM_STYLES),
                found=self.extra.get("norm_style"),
            )
        return self.norm_style


_KNOWN = known_keys(Arch) | {"layer_types", "norm_style"}


def read_arch(value: Any, offset: int) -> Arch:
    """``value`` of the header's ``arch``, a header at ``offset`` of the file.

    Raises Parse with the codes ``arch``, ``layer_types`` and ``int_range``, and Limit.layer_types.
    """
    place = Place("arch", "arch", offset)
    if not isinstance(value, Mapping):
        place.fail("an object", value)
    style = value.get("norm_style")
    known_style = style if isinstance(style, str) and style in NORM_STYLES else None
    extra = {name: freeze(item) for name, item in value.items() if name not in _KNOWN}
    if style is not None and known_style is None:
        extra["norm_style"] = freeze(style)
    arch = read_record(
        Arch,
        value,
        place,
        layer_types=_layer_types(value, place),
        norm_style=known_style,
        extra=MappingProxyType(extra),
    )
    _check_relations(arch, place)
    return arch


def _layer_types(value: Mapping[str, Any], place: Place) -> tuple[str, ...]:
    """The tags as they are: one this package does not know is a matter of running the model."""
    where = Place("layer_types", place.path + ".layer_types", place.offset)
    found = value.get("layer_types")
    if not isinstance(found, list):
        where.fail("an array of strings", found)
    if len(found) > MAX_LAYER_TYPES:
        raise Limit(
            "too many layer types",
            code="layer_types",
            section="header",
            offset=place.offset,
            expected=f"at most {MAX_LAYER_TYPES}",
            found=len(found),
        )
    return tuple(text(item, where.child(i)) for i, item in enumerate(found))


def _check_relations(arch: Arch, place: Place) -> None:
    if len(arch.layer_types) != arch.num_layers:
        where = Place("layer_types", "arch.layer_types", place.offset)
        where.fail(f"one tag for each of {arch.num_layers} layers", len(arch.layer_types))
    if arch.num_attention_heads % arch.num_kv_heads:
        found = arch.num_attention_heads
        place.child("num_attention_heads").fail(f"a multiple of num_kv_heads {arch.num_kv_heads}", found)
    per_layer = arch.attention_heads_per_layer
    if per_layer is not None:
        where = place.child("attention_heads_per_layer")
        if len(per_layer) != arch.num_layers:
            where.fail(f"one count for each of {arch.num_layers} layers", len(per_layer))
        odd = next((heads for heads in per_layer if heads % arch.num_kv_heads), None)
        if odd is not None:
            where.fail(f"multiples of num_kv_heads {arch.num_kv_heads}", odd)

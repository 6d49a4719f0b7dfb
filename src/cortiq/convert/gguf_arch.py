"""Metadata of a GGUF to the header's ``arch`` (SPEC 2), with what llama.cpp assumes for a key that is absent."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cortiq.convert.families import Family
from cortiq.convert.fields import Fields
from cortiq.convert.rope import RopeContext, default_attention_factor, linear_fields, yarn_fields
from cortiq.errors import SourceError, UnsupportedArch

_HARMLESS = frozenset(["vocab_size", "tensor_data_layout", "rope.scaling.finetuned"])
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "expert_count": (0,),
    "expert_used_count": (0,),
    "attention.causal": (True,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
}
_LOCAL_ROPE_BASE = 10000.0
_GEMMA3_LARGEST = 62  # layers of the one Gemma 3 whose queries are scaled by hidden / heads


def arch_of_gguf(
    metadata: Mapping[str, object], family: Family, *, vocab_size: int, tied: bool, factors: list[float] | None
) -> dict[str, object]:
    """``arch`` of a GGUF of ``family``. ``factors`` is the content of rope_freqs.weight, when there is one.

    Raises UnsupportedArch naming every key of the architecture that is not understood, SourceError.config for values
    of the wrong type or missing, SourceError.split for one file of several, SourceError.general_type for an adapter
    or a vision tower.
    """
    architecture = str(metadata["general.architecture"])
    if metadata.get("general.type") not in (None, "model"):
        raise SourceError("this GGUF is no model", code="general_type", found=metadata["general.type"])
    if metadata.get("split.count") not in (None, 0, 1):
        raise SourceError("this is one file of a split GGUF: merge it first", code="split")
    prefix = f"{architecture}."
    own = {key[len(prefix) :]: value for key, value in metadata.items() if key.startswith(prefix)}
    fields = Fields(own, f"GGUF metadata {prefix}*", {"rope.freq_base": 10000.0})
    hidden, heads = fields.count("embedding_length"), fields.count("attention.head_count")
    head_dim = fields.optional_count("attention.key_length") or hidden // heads
    if fields.optional_count("attention.value_length") not in (None, head_dim):
        raise UnsupportedArch("keys and values of different widths are not supported", code="config")
    arch: dict[str, object] = {
        "arch_name": family.model_types[0],
        "hidden_size": hidden,
        "intermediate_size": fields.count("feed_forward_length"),
        "num_layers": fields.count("block_count"),
        "num_attention_heads": heads,
        "num_kv_heads": fields.optional_count("attention.head_count_kv") or heads,
        "head_dim": head_dim,
        "vocab_size": vocab_size,
        "rms_norm_eps": fields.number("attention.layer_norm_rms_epsilon"),
        "norm_style": family.norm_style,
        "tie_word_embeddings": tied,
        "max_position_embeddings": fields.count("context_length"),
    }
    arch |= _gemma_fields(fields, family, hidden, head_dim, heads)
    arch |= _window_fields(fields, family, fields.count("block_count"))
    arch |= _rope_fields(fields, head_dim, factors)
    fields.refuse_rest(_HARMLESS, _NEUTRAL)
    return arch


def _gemma_fields(fields: Fields, family: Family, hidden: int, head_dim: int, heads: int) -> dict[str, object]:
    if not family.embed_scaled:
        return {}
    largest = fields.count("block_count") == _GEMMA3_LARGEST
    found: dict[str, object] = {
        "hidden_act": "gelu_tanh",
        "embed_multiplier": math.sqrt(hidden),
        "query_pre_attn_scalar": float(hidden // heads if largest else head_dim),
    }
    if fields.value("final_logit_softcapping") in (None, 0.0):
        return found
    return found | {"final_logit_softcapping": fields.number("final_logit_softcapping")}


def _window_fields(fields: Fields, family: Family, layers: int) -> dict[str, object]:
    """``layer_types`` and what layers with a window need. A llama with a window is a Mistral: all layers have it."""
    window = fields.optional_count("attention.sliding_window")
    if window is None:
        return {"layer_types": ["FullAttention"] * layers}
    if family.windows == "upper":  # GGUF has no key for the layer the windows begin at
        raise UnsupportedArch(f"sliding windows in a GGUF of {family.name}", code="config", found=window)
    if family.windows != "pattern":
        return {"layer_types": ["SlidingAttention"] * layers, "sliding_window": window}
    pattern = fields.optional_count("attention.sliding_window_pattern") or family.defaults["sliding_window_pattern"]
    assert isinstance(pattern, int)
    tags = ["FullAttention" if (i + 1) % pattern == 0 else "SlidingAttention" for i in range(layers)]
    base = fields.optional_number("rope.freq_base_swa") or _LOCAL_ROPE_BASE
    return {"layer_types": tags, "sliding_window": window, "rope_local_base_freq": base}


def _rope_fields(fields: Fields, head_dim: int, factors: list[float] | None) -> dict[str, object]:
    if fields.optional_count("rope.dimension_count") not in (None, head_dim):
        raise UnsupportedArch("partial rotary embeddings are not supported", code="rope")
    theta = fields.number("rope.freq_base")
    context = RopeContext(theta, head_dim, fields.count("context_length"))
    scaled = _scaling(fields, context)
    if factors is not None:
        if scaled or len(factors) != head_dim // 2:
            raise UnsupportedArch(
                "rope_freqs.weight beside another scaling, or of another length", code="rope", found=len(factors)
            )
        scaled = {"rope_freq_factors": factors}
    return {"rope_theta": theta, **scaled}


def _scaling(fields: Fields, context: RopeContext) -> dict[str, object]:
    kind = fields.value("rope.scaling.type")
    factor = fields.optional_number("rope.scaling.factor") or fields.optional_number("rope.scale_linear") or 1.0
    original = fields.optional_count("rope.scaling.original_context_length") or context.max_positions
    attention = fields.optional_number("rope.scaling.attn_factor") or 1.0
    fast = fields.optional_number("rope.scaling.yarn_beta_fast") or 32.0
    slow = fields.optional_number("rope.scaling.yarn_beta_slow") or 1.0
    if kind != "yarn" and attention != 1.0:
        raise UnsupportedArch("an attention factor without yarn is not supported", code="rope", found=attention)
    if kind in (None, "linear"):
        return linear_fields(factor, context)
    if kind == "none":
        return {}
    if kind != "yarn":
        raise UnsupportedArch(
            "this scaling of the rotary embedding is not supported",
            code="rope",
            expected="none, linear, yarn",
            found=kind,
        )
    profile = {
        "factor": factor,
        "original_max_position_embeddings": original,
        "beta_fast": fast,
        "beta_slow": slow,
        "attention_factor": attention * default_attention_factor(factor),
    }
    return yarn_fields(profile, context)

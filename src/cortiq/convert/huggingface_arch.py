"""config.json of a Hugging Face checkpoint to the header's ``arch`` (SPEC 2).

Both styles of rotary settings are read: ``rope_parameters`` (one object, or one for each type of layer) and the older
``rope_theta`` with ``rope_scaling`` and ``rope_local_base_freq``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from cortiq.convert.families import Family
from cortiq.convert.fields import JSON, Fields
from cortiq.convert.rope import RopeContext, scaling_fields
from cortiq.errors import UnsupportedArch

HARMLESS = frozenset(
    [
        "_attn_implementation_autoset", "_name_or_path", "architectures", "attention_dropout", "bos_token_id",
        "dtype", "eos_token_id", "initializer_range", "model_type", "output_attentions", "output_hidden_states",
        "pad_token_id", "return_dict", "torch_dtype", "transformers.js_config", "transformers_version",
        "unsloth_fixed", "unsloth_version", "use_cache",
    ]
)  # fmt: skip
"""Keys of any config.json that say nothing about the computation, or that are read elsewhere (token ids)."""

_ACTIVATIONS: Mapping[object, str] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
_LAYER_TAGS: Mapping[object, str] = {"full_attention": "FullAttention", "sliding_attention": "SlidingAttention"}


def arch_of_config(config: JSON, family: Family) -> dict[str, object]:
    """``arch`` of a model of ``family``.

    Raises UnsupportedArch naming every key that is not understood, an unknown activation, type of layer or rotary
    scaling; SourceError.config for values of the wrong type or missing.
    """
    outer = Fields(config, "config.json")
    text = outer.optional_table("text_config")
    fields = Fields(config if text is None else text, "config.json", family.defaults)
    if text is not None:
        tied = outer.value("tie_word_embeddings")
        outer.refuse_rest(HARMLESS | family.outer, {})
        fields = Fields({"tie_word_embeddings": tied, **text}, "config.json text_config", family.defaults)
    heads = fields.count("num_attention_heads")
    hidden = fields.count("hidden_size")
    arch: dict[str, object] = {
        "arch_name": str(config["model_type"]),
        "hidden_size": hidden,
        "intermediate_size": fields.count("intermediate_size"),
        "num_layers": fields.count("num_hidden_layers"),
        "num_attention_heads": heads,
        "num_kv_heads": fields.optional_count("num_key_value_heads") or heads,
        "head_dim": fields.optional_count("head_dim") or hidden // heads,
        "vocab_size": fields.count("vocab_size"),
        "rms_norm_eps": fields.number("rms_norm_eps"),
        "norm_style": family.norm_style,
        "tie_word_embeddings": fields.flag("tie_word_embeddings"),
        "max_position_embeddings": fields.count("max_position_embeddings"),
    }
    arch |= _activation(fields)
    arch |= _gemma_fields(fields, family, hidden)
    arch |= _window_fields(fields, family, _int(arch, "num_layers"))
    arch |= _rope_fields(fields, family, arch)
    fields.refuse_rest(HARMLESS | family.harmless, family.neutral)
    return arch


def _int(arch: Mapping[str, object], key: str) -> int:
    value = arch[key]
    assert isinstance(value, int)
    return value


def _activation(fields: Fields) -> dict[str, object]:
    # Gemma configurations carry both keys; the class reads hidden_activation.
    found = fields.first("hidden_activation", "hidden_act")
    act = _ACTIVATIONS.get(found)
    if act is None:
        known = ", ".join(str(name) for name in _ACTIVATIONS)
        raise UnsupportedArch("this activation is not supported", code="hidden_act", expected=known, found=found)
    return {} if act == "silu" else {"hidden_act": act}


def _gemma_fields(fields: Fields, family: Family, hidden: int) -> dict[str, object]:
    if not family.embed_scaled:
        return {}
    extra: dict[str, object] = {"embed_multiplier": math.sqrt(hidden)}
    for key in ("query_pre_attn_scalar", "final_logit_softcapping"):
        value = fields.optional_number(key)
        if value is not None:
            extra[key] = value
    return extra


def _window_fields(fields: Fields, family: Family, layers: int) -> dict[str, object]:
    """``layer_types`` and, when a layer has one, ``sliding_window``."""
    full = {"layer_types": ["FullAttention"] * layers}
    if family.windows == "none":
        return dict(full)
    window = fields.optional_count("sliding_window") if fields.stated("sliding_window") is not None else None
    pattern = 0
    if family.windows == "upper":
        first = fields.value("max_window_layers")
        if not isinstance(first, int) or first < 0:
            raise fields.wrong("max_window_layers", "a layer index", first)
        window = window if fields.flag("use_sliding_window") else None
    elif family.windows == "pattern":
        found = fields.first("sliding_window_pattern", "_sliding_window_pattern")
        if not isinstance(found, int) or found < 1:
            raise fields.wrong("sliding_window_pattern", "a positive integer", found)
        pattern = found
    given = fields.value("layer_types")
    if given is not None:
        tags = _given_tags(given, layers, fields)
    elif window is None:
        tags = full["layer_types"]
    elif family.windows == "pattern":
        tags = ["FullAttention" if (i + 1) % pattern == 0 else "SlidingAttention" for i in range(layers)]
    else:
        start = 0 if family.windows == "all" else _upper_start(fields)
        tags = ["FullAttention" if i < start else "SlidingAttention" for i in range(layers)]
    if "SlidingAttention" not in tags:
        return {"layer_types": tags}
    if window is None:
        raise fields.wrong("sliding_window", "a window for the layers of type sliding_attention", None)
    return {"layer_types": tags, "sliding_window": window}


def _upper_start(fields: Fields) -> int:
    first = fields.value("max_window_layers")
    assert isinstance(first, int)
    return first


def _given_tags(given: object, layers: int, fields: Fields) -> list[str]:
    if not isinstance(given, list) or len(given) != layers:
        raise fields.wrong("layer_types", f"one type for each of {layers} layers", given)
    unknown = sorted({str(tag) for tag in given if tag not in _LAYER_TAGS})
    if unknown:
        raise UnsupportedArch(
            "layers of a type that is not supported",
            code="layer_type",
            expected=", ".join(str(tag) for tag in _LAYER_TAGS),
            found=", ".join(unknown),
        )
    return [_LAYER_TAGS[tag] for tag in given]


def _rope_fields(fields: Fields, family: Family, arch: Mapping[str, object]) -> dict[str, object]:
    scaling, local = _rope_tables(fields, family)
    theta = Fields(scaling, f"{fields.where} rope_parameters").number("rope_theta")
    context = RopeContext(theta, _int(arch, "head_dim"), _int(arch, "max_position_embeddings"))
    fraction = scaling.get("partial_rotary_factor")
    if fraction not in (None, 1, 1.0):
        raise UnsupportedArch("partial rotary embeddings are not supported", code="rope", found=fraction)
    found: dict[str, object] = {"rope_theta": theta}
    found |= scaling_fields(scaling, context, f"{fields.where} rope_parameters")
    if local is None:
        return found
    where = f"{fields.where} rope_parameters sliding_attention"
    if scaling_fields(local, context, where):
        raise UnsupportedArch(f"{where}: scaled frequencies of layers with a window", code="rope")
    return found | {"rope_local_base_freq": Fields(local, where).number("rope_theta")}


def _rope_tables(fields: Fields, family: Family) -> tuple[dict[str, object], dict[str, object] | None]:
    """Settings of the layers with full attention, and of those with a window when these have their own."""
    own_local = "rope_local_base_freq" in family.defaults
    theta = fields.number("rope_theta")
    local_theta = fields.number("rope_local_base_freq") if own_local else None
    new = fields.optional_table("rope_parameters")
    old = fields.optional_table("rope_scaling")
    local: dict[str, object] | None = {"rope_theta": local_theta} if own_local else None
    if new is None:
        return {"rope_theta": theta, **(old or {})}, local
    if own_local and ("full_attention" in new or "sliding_attention" in new):
        parts = Fields(new, f"{fields.where} rope_parameters")
        full, sliding = parts.optional_table("full_attention"), parts.optional_table("sliding_attention")
        parts.refuse_rest((), {})
        return {"rope_theta": theta, **(full or {})}, {"rope_theta": local_theta, **(sliding or {})}
    return {"rope_theta": theta, **new}, local

"""Reads header ``arch`` and directory into :class:`ModelFacts` (SPEC 2).

Which operators a layer has follows from the tensors that are present, never from the model's name. What this package
cannot execute is refused by the tensor or key that asks for it: computing without it would give wrong text silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cortiq.errors import MissingTensor, Parse, UnsupportedArch
from cortiq.model.facts import EMBEDDING, FINAL_NORM, LM_HEAD, LayerFacts, ModelFacts
from cortiq.model.ffn import dense
from cortiq.model.mixers import attention
from cortiq.model.weights import Entry, Weights

if TYPE_CHECKING:
    from cortiq.container import Arch

_NORMS = frozenset(
    f"{name}_layernorm.weight" for name in ("input", "post_attention", "pre_feedforward", "post_feedforward")
)
# Copies of what is computed or stored elsewhere; nothing is lost by not reading them.
_INERT = frozenset(["self_attn.rotary_emb.inv_freq", "mlp.down_proj.t.weight"])
_LAYER_TENSORS = _NORMS | attention.TENSORS | dense.TENSORS | _INERT
_LAYER_NAME = re.compile(r"model\.layers\.([^.]*)\.(.+)", re.DOTALL)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_TOP_TENSORS = frozenset([EMBEDDING, FINAL_NORM, LM_HEAD, "model.rotary_emb.inv_freq"])
# Keys of arch that change the computation in a way no plan op does, unless they have the value given here.
_NEUTRAL: Mapping[str, object] = {
    "mla": None,
    "head_clusters": None,
    "g3n": None,
    "kda_gate_lower_bound": None,
    "global_head_dim": None,
    "num_global_kv_heads": None,
    "global_partial_rotary_factor": None,
    "activation_situ_beta": None,
    "activation_situ_linear_beta": None,
    "attn_v_norm": False,
    "num_loops": 1,
}


def describe(arch: Arch, entries: Mapping[str, Entry]) -> ModelFacts:
    """Facts of the model in a file with this ``arch`` and this directory.

    Raises UnsupportedArch (a tensor, key or value that cannot be executed), MissingTensor, ShapeMismatch (both shapes
    in the message), Parse (numbers that contradict each other, raw bytes as a weight, a malformed layer index).
    """
    _check_keys(arch)
    _check_names(arch, entries)
    weights = Weights(entries)
    weights.matrix(EMBEDDING, arch.vocab_size, arch.hidden_size)
    weights.vector(FINAL_NORM, arch.hidden_size)
    schedule = attention.Schedule.read(arch)
    return ModelFacts(
        hidden=arch.hidden_size,
        vocab=arch.vocab_size,
        layers=tuple(_layer(arch, weights, schedule, i) for i in range(arch.num_layers)),
        norm_eps=arch.rms_norm_eps,
        norm_plus_one=arch.required_norm_style() == "gemma",
        embed_scale=arch.embed_multiplier,
        head=_head(arch, weights),
        logit_scale=1.0 if arch.logit_multiplier is None else arch.logit_multiplier,
        logit_softcap=arch.final_logit_softcapping or 0.0,
        max_positions=arch.max_position_embeddings,
    )


def _layer(arch: Arch, weights: Weights, schedule: attention.Schedule, index: int) -> LayerFacts:
    prefix = f"model.layers.{index}."
    sandwich = f"{prefix}pre_feedforward_layernorm.weight" in weights
    norms = ["input", "post_attention"]
    if sandwich:
        norms += ["pre_feedforward", "post_feedforward"]
    elif f"{prefix}post_feedforward_layernorm.weight" in weights:
        raise UnsupportedArch(
            "a norm behind the feed-forward network without one in front of it",
            code="tensor",
            tensor=f"{prefix}post_feedforward_layernorm.weight",
        )
    for name in norms:
        weights.vector(f"{prefix}{name}_layernorm.weight", arch.hidden_size)
    return LayerFacts(
        prefix=prefix,
        mixer=attention.read_attention(arch, weights, schedule, index),
        ffn=dense.read_dense(arch, weights, index),
        sandwich=sandwich,
    )


def _head(arch: Arch, weights: Weights) -> str:
    """A stored ``lm_head`` always wins over ``tie_word_embeddings``."""
    if LM_HEAD in weights:
        return weights.matrix(LM_HEAD, arch.vocab_size, arch.hidden_size)
    if not arch.tie_word_embeddings:
        raise MissingTensor("neither lm_head nor tie_word_embeddings", code="tensor", tensor=LM_HEAD)
    return EMBEDDING


def _check_keys(arch: Arch) -> None:
    for key, neutral in _NEUTRAL.items():
        value = getattr(arch, key)
        if value != neutral:
            raise UnsupportedArch("not supported", code=key, section=f"header.arch.{key}", found=value)
    for index, tag in enumerate(arch.layer_types):
        if tag not in ("FullAttention", "SlidingAttention"):
            raise UnsupportedArch(
                f"layer {index} is of a type that is not supported",
                code="layer_type",
                section="header.arch.layer_types",
                found=tag,
            )


def _check_names(arch: Arch, entries: Mapping[str, Entry]) -> None:
    """Refuses tensors of the decoder that nothing here would read. MTP and skill tensors are optional extras."""
    for name in entries:
        if not name.startswith(("model.", "lm_head.")) or name.startswith("model.mtp."):
            continue
        if match := _LAYER_NAME.fullmatch(name):
            index, rest = match.groups()
            if not _INDEX.fullmatch(index) or int(index) >= arch.num_layers:
                raise Parse(
                    f"layer index outside 0 to {arch.num_layers - 1}", code="layer_index", tensor=name, found=index
                )
            known = rest in _LAYER_TENSORS
        else:
            known = name in _TOP_TENSORS
        if not known:
            raise UnsupportedArch("a tensor that cannot be executed", code="tensor", tensor=name)

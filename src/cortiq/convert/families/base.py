"""What a model family is to the converter: one frozen table, no code (SPEC 2, 3).

A family file says which tensors a layer has and what they are called in both kinds of source, which configuration keys
mean something, and what the Hugging Face class assumes for a key that is absent. Whatever the table does not name is
refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Windows = Literal["none", "all", "upper", "pattern"]


@dataclass(frozen=True, slots=True)
class TensorRule:
    """One tensor of a layer, or one outside the layers.

    ``name``      canonical (Hugging Face) name behind ``model.layers.{i}.``, or the whole name outside the layers
    ``gguf``      the same in a GGUF file, behind ``blk.{i}.`` or whole
    ``shape``     letters: h hidden, i intermediate, v vocab, d head_dim, q query heads x head_dim, k kv heads x
                  head_dim
    ``optional``  may be absent
    ``norm``      weight of an RMSNorm
    ``heads``     "q" or "k" when the rows are those of query or key heads, which some GGUFs hold in another order
    ``zero``      executed only as zero: dropped when every value is 0, refused otherwise
    """

    name: str
    gguf: str
    shape: str
    optional: bool = False
    norm: bool = False
    heads: Literal["", "q", "k"] = ""
    zero: bool = False


TOP_RULES = (
    TensorRule("model.embed_tokens.weight", "token_embd.weight", "vh"),
    TensorRule("model.norm.weight", "output_norm.weight", "h", norm=True),
    TensorRule("lm_head.weight", "output.weight", "vh", optional=True),
)

_PRE_NORM = (TensorRule("input_layernorm.weight", "attn_norm.weight", "h", norm=True),)
_ATTENTION = (
    TensorRule("self_attn.q_proj.weight", "attn_q.weight", "qh", heads="q"),
    TensorRule("self_attn.k_proj.weight", "attn_k.weight", "kh", heads="k"),
    TensorRule("self_attn.v_proj.weight", "attn_v.weight", "kh"),
    TensorRule("self_attn.o_proj.weight", "attn_output.weight", "hq"),
)
_MLP = (
    TensorRule("mlp.gate_proj.weight", "ffn_gate.weight", "ih"),
    TensorRule("mlp.up_proj.weight", "ffn_up.weight", "ih"),
    TensorRule("mlp.down_proj.weight", "ffn_down.weight", "hi"),
)
PRE_NORM_LAYER = (
    *_PRE_NORM,
    *_ATTENTION,
    TensorRule("post_attention_layernorm.weight", "ffn_norm.weight", "h", norm=True),
    *_MLP,
)
SANDWICH_LAYER = (
    *_PRE_NORM,
    *_ATTENTION,
    TensorRule("self_attn.q_norm.weight", "attn_q_norm.weight", "d", norm=True),
    TensorRule("self_attn.k_norm.weight", "attn_k_norm.weight", "d", norm=True),
    TensorRule("post_attention_layernorm.weight", "post_attention_norm.weight", "h", norm=True),
    TensorRule("pre_feedforward_layernorm.weight", "ffn_norm.weight", "h", norm=True),
    *_MLP,
    TensorRule("post_feedforward_layernorm.weight", "post_ffw_norm.weight", "h", norm=True),
)


def qkv_bias(*, optional: bool) -> tuple[TensorRule, ...]:
    """Biases of the query, key and value projections; that of the output projection must be zero."""
    return (
        TensorRule("self_attn.q_proj.bias", "attn_q.bias", "q", optional, heads="q"),
        TensorRule("self_attn.k_proj.bias", "attn_k.bias", "k", optional, heads="k"),
        TensorRule("self_attn.v_proj.bias", "attn_v.bias", "k", optional),
        TensorRule("self_attn.o_proj.bias", "attn_output.bias", "h", optional=True, zero=True),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of models that are configured alike.

    ``model_types``          ``model_type`` of config.json
    ``gguf_architectures``   ``general.architecture`` of a GGUF
    ``layer_rules``          tensors of every layer
    ``norm_style``           "qwen": x*w, "gemma": x*(1+w)
    ``gguf_norm_offset``     what the GGUF exporter added to the norm weights
    ``gguf_permuted_heads``  True when the GGUF holds query and key rows in interleaved rotary order
    ``windows``              which layers see a sliding window: none; all of them when the window is set; the upper
                             ones, from ``max_window_layers`` on; or all but each ``sliding_window_pattern``-th
    ``embed_scaled``         the embedding is multiplied by sqrt(hidden)
    ``defaults``             what the Hugging Face class assumes for a key that is absent
    ``harmless``             configuration keys that change no result of a forward pass
    ``neutral``              configuration keys that change none as long as they hold one of these values
    ``outer``                keys beside a ``text_config`` that concern other parts of the model
    ``left_out``             prefixes of tensors of those other parts, left out with a note in the receipt
    """

    name: str
    model_types: tuple[str, ...]
    gguf_architectures: tuple[str, ...]
    layer_rules: tuple[TensorRule, ...]
    norm_style: Literal["qwen", "gemma"] = "qwen"
    gguf_norm_offset: float = 0.0
    gguf_permuted_heads: bool = False
    windows: Windows = "none"
    embed_scaled: bool = False
    defaults: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    harmless: frozenset[str] = frozenset()
    neutral: Mapping[str, tuple[object, ...]] = field(default_factory=lambda: MappingProxyType({}))
    outer: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()

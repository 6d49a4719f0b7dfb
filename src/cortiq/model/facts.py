"""What a model is made of, as the plan builder and the NumPy reference read it: frozen facts, no tensors (SPEC 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class RopeFacts:
    """Rotation of query and key heads.

    ``inverse_frequencies`` holds rotary_dim / 2 values (f32, radians a position); element i turns the pair
    (i, i + rotary_dim / 2) of a head, the dims from rotary_dim on pass through. ``attention_factor`` multiplies
    both cosine and sine.
    """

    inverse_frequencies: tuple[float, ...]
    attention_factor: float

    @property
    def rotary_dim(self) -> int:
        """Leading dims of a head that are rotated."""
        return 2 * len(self.inverse_frequencies)


@dataclass(frozen=True, slots=True)
class AttentionFacts:
    """One grouped-query softmax attention.

    ``prefix`` ends in a dot; below it are ``{q,k,v,o}_proj.weight`` and what the flags announce. A ``window`` of w > 0
    lets a position see itself and the w - 1 before it; 0 is unlimited. ``softcap`` c > 0 maps a scaled score s to
    c * tanh(s / c); 0 leaves it.
    """

    prefix: str
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    rope: RopeFacts
    scale: float
    softcap: float
    qkv_bias: bool
    output_bias: bool
    q_norm: bool
    k_norm: bool

    @property
    def query_width(self) -> int:
        """Width of the queries of one position, and of what ``o_proj`` reads."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values, of one position."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class DenseFacts:
    """A gated feed-forward network of ``width`` neurons: ``{gate,up,down}_proj.weight`` below ``prefix``."""

    prefix: str
    width: int
    activation: Activation


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One decoder layer.

    The norm before the mixer is ``input_layernorm``. Plain layers norm the network's input with
    ``post_attention_layernorm``. A ``sandwich`` layer norms it with ``pre_feedforward_layernorm``, the mixer's output
    with ``post_attention_layernorm`` and the network's output with ``post_feedforward_layernorm``.
    """

    prefix: str
    mixer: AttentionFacts
    ffn: DenseFacts
    sandwich: bool

    @property
    def ffn_norm(self) -> str:
        """Name of the norm weight in front of the feed-forward network."""
        return self.prefix + ("pre_feedforward_layernorm" if self.sandwich else "post_attention_layernorm") + ".weight"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A whole decoder.

    ``norm_plus_one``: RMS norms multiply by 1 + w (``norm_style`` gemma). ``head`` is the tensor that gives the logits:
    ``lm_head.weight`` or, tied, the embedding. Logits are multiplied by ``logit_scale``, then, with a ``logit_softcap``
    c > 0, become c * tanh(logit / c). ``max_positions`` is the longest context the model was made for.
    """

    hidden: int
    vocab: int
    layers: tuple[LayerFacts, ...]
    norm_eps: float
    norm_plus_one: bool
    embed_scale: float
    head: str
    logit_scale: float
    logit_softcap: float
    max_positions: int

    @property
    def tied(self) -> bool:
        """True when the embedding is also the output head."""
        return self.head == EMBEDDING


EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"

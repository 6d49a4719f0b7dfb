"""What header and directory say about a model, and every refusal by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from builders.tiny import Tiny, arch_of, weights_of
from cortiq.container.arch import read_arch
from cortiq.errors import CortiqError, MissingTensor, Parse, ShapeMismatch, UnsupportedArch
from cortiq.model.capabilities import describe
from cortiq.model.facts import ModelFacts

LAYER = "model.layers.1."


@dataclass(frozen=True)
class Entry:
    dtype: int
    shape: tuple[int, ...]


Entries = dict[str, Entry]


def entries_of(tiny: Tiny) -> Entries:
    return {name: Entry(0 if values.ndim == 2 else 1, values.shape) for name, values in weights_of(tiny).items()}


def facts_of(tiny: Tiny, change: Callable[[Entries], object] = lambda _: None) -> ModelFacts:
    entries = entries_of(tiny)
    change(entries)
    return describe(read_arch(arch_of(tiny), 0), entries)


def test_plain_model() -> None:
    facts = facts_of(Tiny())
    assert (facts.hidden, facts.vocab, len(facts.layers), facts.head, facts.tied) == (
        64,
        512,
        2,
        "lm_head.weight",
        False,
    )
    layer = facts.layers[1]
    assert (layer.sandwich, layer.ffn_norm) == (False, f"{LAYER}post_attention_layernorm.weight")
    mixer = layer.mixer
    assert (mixer.query_width, mixer.kv_width, mixer.window, mixer.scale) == (64, 32, 0, 0.25)
    assert (mixer.qkv_bias, mixer.output_bias, mixer.q_norm, mixer.k_norm) == (False,) * 4
    assert (layer.ffn.width, layer.ffn.activation) == (96, "silu")


def test_presence_decides() -> None:
    facts = facts_of(Tiny(tied=True, qkv_bias=True, output_bias=True, qk_norm=True, sandwich=True))
    mixer = facts.layers[0].mixer
    assert mixer.qkv_bias
    assert mixer.output_bias
    assert mixer.q_norm
    assert mixer.k_norm
    assert facts.tied
    assert facts.layers[0].ffn_norm == "model.layers.0.pre_feedforward_layernorm.weight"


def test_a_stored_head_wins_over_tying() -> None:
    assert facts_of(Tiny(arch={"tie_word_embeddings": True})).head == "lm_head.weight"


def test_layers_may_differ_in_width_heads_and_bias() -> None:
    def change(entries: Entries) -> None:
        for part, shape in (("gate", (32, 64)), ("up", (32, 64)), ("down", (64, 32))):
            entries[f"{LAYER}mlp.{part}_proj.weight"] = Entry(0, shape)
        entries[f"{LAYER}self_attn.q_proj.weight"] = Entry(0, (128, 64))
        entries[f"{LAYER}self_attn.o_proj.weight"] = Entry(0, (64, 128))

    facts = facts_of(Tiny(arch={"attention_heads_per_layer": [4, 8]}), change)
    assert [layer.ffn.width for layer in facts.layers] == [96, 32]
    assert [layer.mixer.heads for layer in facts.layers] == [4, 8]


def test_numbers_of_the_header_are_used() -> None:
    arch: dict[str, Any] = {
        "norm_style": "gemma",
        "hidden_act": "gelu_tanh",
        "embed_multiplier": 8.0,
        "query_pre_attn_scalar": 64,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "logit_multiplier": 0.5,
        "rms_norm_eps": 1e-5,
    }
    facts = facts_of(Tiny(arch=arch))
    assert facts.norm_plus_one
    assert (facts.embed_scale, facts.logit_scale, facts.logit_softcap, facts.norm_eps) == (8.0, 0.5, 30.0, 1e-5)
    assert (facts.layers[0].mixer.scale, facts.layers[0].mixer.softcap) == (0.125, 50.0)
    assert facts.layers[0].ffn.activation == "gelu_tanh"


def test_windows_by_tag_and_by_pattern() -> None:
    tags = ["SlidingAttention", "FullAttention", "SlidingAttention"]
    tagged = facts_of(Tiny(layers=3, arch={"layer_types": tags, "sliding_window": 8}))
    assert [layer.mixer.window for layer in tagged.layers] == [8, 0, 8]
    pattern = facts_of(Tiny(layers=6, arch={"sliding_window": 8, "sliding_window_pattern": 3}))
    assert [layer.mixer.window for layer in pattern.layers] == [8, 8, 0, 8, 8, 0]
    unused = facts_of(Tiny(arch={"sliding_window": 8}))
    assert [layer.mixer.window for layer in unused.layers] == [0, 0]


@pytest.mark.parametrize(
    "name",
    [
        "model.mtp.layers.0.mlp.gate_proj.weight",
        "skill.sql.model.layers.0.mlp.gate_proj.weight",
        "cmf.digests.sha256",
        f"{LAYER}self_attn.rotary_emb.inv_freq",
        f"{LAYER}mlp.down_proj.t.weight",
    ],
)
def test_extras_that_need_not_be_executed(name: str) -> None:
    facts_of(Tiny(), lambda entries: entries.update({name: Entry(6, (3,))}))


@pytest.mark.parametrize(
    "name",
    [
        f"{LAYER}mlp.gate.weight",
        f"{LAYER}mlp.experts.0.gate_proj.weight",
        f"{LAYER}mlp.gate_proj.tube1.weight",
        f"{LAYER}mlp.up_proj.bias",
        f"{LAYER}self_attn.g_proj.weight",
        f"{LAYER}self_attn.kv_a_proj_with_mqa.weight",
        f"{LAYER}linear_attn.in_proj_qkv.weight",
        f"{LAYER}short_conv.conv.weight",
        f"{LAYER}layer_scalar",
        "lm_head.clusters.weight",
        "lm_head.bias",
        "model.embed_positions.weight",
    ],
)
def test_tensors_that_cannot_be_executed_are_named(name: str) -> None:
    with pytest.raises(UnsupportedArch) as caught:
        facts_of(Tiny(), lambda entries: entries.update({name: Entry(1, (64, 64))}))
    assert caught.value.tensor == name


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_loops", 2),
        ("attn_v_norm", True),
        ("global_head_dim", 32),
        ("num_global_kv_heads", 1),
        ("head_clusters", {"count": 4}),
        ("mla", {"kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}),
        ("hidden_act", "situ"),
        ("layer_types", ["FullAttention", "LinearAttention"]),
        ("layer_types", ["FullAttention", "Kda"]),
        ("layer_types", ["FullAttention", "Novel"]),
    ],
)
def test_keys_that_cannot_be_executed_are_named(key: str, value: object) -> None:
    with pytest.raises(UnsupportedArch) as caught:
        facts_of(Tiny(arch={key: value}))
    assert caught.value.section == f"header.arch.{key}"


def test_an_output_gate_inside_the_queries_is_named() -> None:
    name = f"{LAYER}self_attn.q_proj.weight"
    with pytest.raises(UnsupportedArch) as caught:
        facts_of(Tiny(), lambda entries: entries.update({name: Entry(0, (128, 64))}))
    assert caught.value.tensor == name


def test_biases_come_all_three_or_none() -> None:
    with pytest.raises(UnsupportedArch) as caught:
        facts_of(Tiny(qkv_bias=True), lambda entries: entries.pop(f"{LAYER}self_attn.k_proj.bias"))
    assert caught.value.tensor == f"{LAYER}self_attn.q_proj.bias"


def test_a_norm_behind_the_network_needs_one_in_front() -> None:
    with pytest.raises(UnsupportedArch) as caught:
        facts_of(Tiny(sandwich=True), lambda entries: entries.pop(f"{LAYER}pre_feedforward_layernorm.weight"))
    assert caught.value.tensor == f"{LAYER}post_feedforward_layernorm.weight"


@pytest.mark.parametrize("name", sorted(weights_of(Tiny(sandwich=False))))
def test_every_tensor_is_needed(name: str) -> None:
    with pytest.raises(MissingTensor) as caught:
        facts_of(Tiny(), lambda entries: entries.pop(name))
    assert caught.value.tensor == name


@pytest.mark.parametrize("name", sorted(weights_of(Tiny(qkv_bias=True, output_bias=True, qk_norm=True, sandwich=True))))
def test_every_shape_is_checked(name: str) -> None:
    tiny = Tiny(qkv_bias=True, output_bias=True, qk_norm=True, sandwich=True)
    shape = weights_of(tiny)[name].shape
    smaller = (shape[0] - 1, *shape[1:])
    with pytest.raises(ShapeMismatch) as caught:
        facts_of(tiny, lambda entries: entries.update({name: Entry(0, smaller)}))
    # A gate of another width is itself in order: the tensor that contradicts it is named.
    if not name.endswith("gate_proj.weight"):
        assert caught.value.tensor == name
        assert str(list(shape)) in str(caught.value)
        assert str(list(smaller)) in str(caught.value)


@pytest.mark.parametrize("shape", [(), (64 * 64,), (64, 64, 1)])
def test_matrices_have_two_axes(shape: tuple[int, ...]) -> None:
    for part in ("self_attn.q_proj", "mlp.gate_proj"):
        with pytest.raises(ShapeMismatch):
            facts_of(Tiny(), lambda entries, part=part: entries.update({f"{LAYER}{part}.weight": Entry(1, shape)}))


@pytest.mark.parametrize("name", [f"{LAYER}self_attn.q_proj.weight", f"{LAYER}input_layernorm.weight"])
def test_raw_bytes_are_no_weights(name: str) -> None:
    with pytest.raises(Parse) as caught:
        facts_of(Tiny(), lambda entries: entries.update({name: Entry(6, entries[name].shape)}))
    assert caught.value.kind == "Parse.dtype_role"


def test_a_norm_may_be_quantized_and_have_leading_axes_of_one() -> None:
    facts_of(Tiny(), lambda entries: entries.update({f"{LAYER}input_layernorm.weight": Entry(3, (1, 64))}))


@pytest.mark.parametrize("index", ["-1", "01", "2", "99999999999", "１", "", " 1", "1\n"])
def test_layer_indices_outside_the_model_are_refused(index: str) -> None:
    with pytest.raises(Parse) as caught:
        facts_of(
            Tiny(), lambda entries: entries.update({f"model.layers.{index}.mlp.up_proj.weight": Entry(0, (96, 64))})
        )
    assert caught.value.kind == "Parse.layer_index"


@pytest.mark.parametrize(
    "arch",
    [
        {"sliding_window": 8, "sliding_window_pattern": 0},
        {"layer_types": ["SlidingAttention", "FullAttention"]},
        {"layer_types": ["SlidingAttention", "FullAttention"], "sliding_window": 0},
        {"partial_rotary_factor": 0.2},
        {"norm_style": "other"},
    ],
)
def test_numbers_that_contradict_each_other(arch: dict[str, Any]) -> None:
    with pytest.raises(CortiqError) as caught:
        facts_of(Tiny(arch=arch))
    assert isinstance(caught.value, Parse)

"""The dtype of a tensor follows from its name and shape."""

from __future__ import annotations

from typing import Any

import pytest

from cortiq.errors import Parse, UsageError
from cortiq.quantize import Choice, Policy, parse_override
from cortiq.quantize.policy import EMBEDDING, HEAD, SAME

MATRIX = (256, 128)
DOWN = "model.layers.3.mlp.down_proj.weight"


def chosen(quant: str, name: str = DOWN, shape: tuple[int, ...] = MATRIX, **given: Any) -> Choice:
    return Policy(quant=quant, **given).choose(name, shape)


@pytest.mark.parametrize("quant", ["q8_2f", "q4_tiled", "f16", "bf16", "f32"])
def test_matrices_of_the_layers_get_what_is_asked_for(quant: str) -> None:
    assert chosen(quant) == Choice(quant)


def test_the_columns_of_q8_row_are_weighed_unless_it_is_asked_for_by_name_or_formula() -> None:
    assert chosen("q8_row") == Choice("q8_row", weigh=True)
    assert chosen("q8_row", encoder="plain") == Choice("q8_row")
    assert chosen("q8_row", overrides=(parse_override("down=q8_row"),)) == Choice("q8_row", forced=True)
    for name in (EMBEDDING, HEAD):
        assert not chosen("q8_row", name).weigh


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.norm.weight", (4096,)),
        ("model.layers.0.self_attn.q_proj.bias", (4096,)),
        ("model.layers.0.mlp.shared.weight", (5, 6)),
        ("model.layers.0.linear_attn.conv1d.weight", (64, 1, 4)),
        ("model.layers.0.mlp.gate.weight", (64, 4096)),
        ("model.layers.0.mlp.shared_expert_gate.weight", (1, 4096)),
        ("model.layers.0.linear_attn.in_proj_a.weight", (64, 4096)),
        ("model.layers.0.self_attn.g_proj.weight", (64, 4096)),
    ],
)
def test_vectors_small_tensors_and_gates_stay_f16(name: str, shape: tuple[int, ...]) -> None:
    for quant in ("q4_tiled", "bf16", "f32"):
        assert chosen(quant, name, shape) == Choice("f16")


def test_a_gate_projection_is_no_gate() -> None:
    assert chosen("q4_tiled", "model.layers.0.mlp.gate_proj.weight") == Choice("q4_tiled")


@pytest.mark.parametrize("name", [EMBEDDING, HEAD])
@pytest.mark.parametrize(
    ("quant", "expected"), [("q4_tiled", "q8_row"), ("q8_row", "q8_row"), ("f16", "f16"), ("f32", "f32")]
)
def test_the_ends_do_not_go_below_six_bits(name: str, quant: str, expected: str) -> None:
    assert chosen(quant, name) == Choice(expected)
    assert chosen(quant, name, embed=SAME, head=SAME) == Choice(quant)
    assert chosen(quant, name, embed="f16", head="f16") == Choice("f16")


def test_columns_that_are_no_whole_groups_give_eight_bits_and_say_so() -> None:
    for quant in ("q4_tiled", "q1", "q1p", "q1s", "q1t"):
        assert chosen(quant, shape=(64, 100)) == Choice("q8_2f", wanted=quant)
    for quant in ("q8_2f", "q4_block"):
        assert chosen(quant, shape=(64, 100)) == Choice(quant)
    assert chosen("q8_row", shape=(64, 100)).dtype == "q8_row"
    assert chosen("q4_tiled", EMBEDDING, (64, 100), embed=SAME) == Choice("q8_2f", wanted="q4_tiled")


def test_the_last_rule_that_matches_counts() -> None:
    rules = tuple(parse_override(text) for text in ("down_proj=q8", r"layers\.3\..*=f16", "up_proj=bf16"))
    assert chosen("q4_tiled", overrides=rules) == Choice("f16", forced=True)
    assert chosen("q4_tiled", "model.layers.2.mlp.down_proj.weight", overrides=rules).dtype == "q8_row"
    assert chosen("q4_tiled", "model.layers.2.mlp.gate_proj.weight", overrides=rules) == Choice("q4_tiled")


def test_a_rule_is_never_bent_to_fit() -> None:
    rules = (parse_override("norm=q8"),)
    with pytest.raises(Parse) as caught:
        chosen("q8_row", "model.norm.weight", (64,), overrides=rules)
    assert caught.value.tensor == "model.norm.weight"
    with pytest.raises(Parse):
        chosen("q8_row", shape=(64, 100), overrides=(parse_override("down=q4t"),))


def test_a_rule_without_a_tensor_is_refused() -> None:
    policy = Policy(quant="q8_row", overrides=(parse_override("down_proj=q4t"), parse_override("dwon=q4t")))
    with pytest.raises(UsageError) as caught:
        policy.check_overrides([DOWN])
    assert caught.value.found == "dwon"


@pytest.mark.parametrize("text", ["", "=q8", "down_proj", "(=q8", "down_proj=", "down_proj=q99"])
def test_malformed_rules(text: str) -> None:
    with pytest.raises(UsageError):
        parse_override(text)


def test_a_pattern_may_hold_an_equals_sign() -> None:
    assert parse_override("a=b=q8").pattern.pattern == "a=b"


def test_an_unknown_encoder_is_refused() -> None:
    with pytest.raises(UsageError, match="encoder"):
        Policy(quant="q8_row", encoder="better")  # type: ignore[arg-type]


def test_q2tp_is_for_gate_and_up() -> None:
    shape = (64, 64)
    dense = Policy(quant="q2tp")
    assert dense.choose("model.layers.0.mlp.gate_proj.weight", shape).dtype == "q2tp"
    assert dense.choose("model.layers.0.mlp.down_proj.weight", shape).dtype == "q4tp"
    assert dense.choose("model.layers.0.self_attn.q_proj.weight", shape).dtype == "q4tp"
    assert dense.choose("model.mtp.layers.0.mlp.up_proj.weight", shape).dtype == "q4tp"
    assert dense.choose(EMBEDDING, shape).dtype == "q8_row"
    assert Policy(quant="q2tp", embed=SAME).choose(EMBEDDING, shape).dtype == "q4tp"
    experts = Policy(quant="q2tp", has_experts=True)
    assert experts.choose("model.layers.0.mlp.gate_proj.weight", shape).dtype == "q4tp"
    assert experts.choose("model.layers.0.mlp.experts.3.up_proj.weight", shape).dtype == "q2tp"
    assert experts.choose("model.layers.0.mlp.shared_expert.gate_proj.weight", shape).dtype == "q2tp"
    assert experts.choose("model.layers.0.mlp.experts.3.down_proj.weight", shape).dtype == "q4tp"

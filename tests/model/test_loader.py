"""Native plans built from files, against the NumPy forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cortiq.container
from builders.golden import max_relative_error
from builders.tiny import Tiny, weights_of, write_tiny
from cortiq import _native
from cortiq.container import File, TensorSpec, grow
from cortiq.errors import UnsupportedArch, UsageError
from cortiq.layouts import layout
from cortiq.model.loader import LoadedPlan, PlanOptions, build_plan
from cortiq.model.plan_builder import PlanBuilder
from cortiq.model.reference import forward

TOKENS = [(37 * i + 11) % 500 for i in range(70)]


def logits_of(loaded: LoadedPlan, tokens: list[int]) -> NDArray[np.float32]:
    plan = loaded.plan
    sequence = plan.new_sequence()
    out = np.empty((len(tokens), loaded.info.facts.vocab), np.float32)
    count = plan.step(
        np.array([sequence], np.int32),
        np.array([len(tokens)], np.int32),
        np.array(tokens, np.int32),
        np.ones(len(tokens), np.uint8),
        out,
    )
    plan.free_sequence(sequence)
    assert count == len(tokens)
    return out


def reference(file: File, loaded: LoadedPlan) -> NDArray[np.float32]:
    return forward(loaded.info.facts, lambda name: file[name].numpy().astype(np.float32), TOKENS)


KINDS: dict[str, Tiny] = {
    "plain": Tiny(),
    "f16": Tiny(matrix="f16"),
    "bf16": Tiny(matrix="bf16"),
    "q8_row": Tiny(matrix="q8_row"),
    "q4_tiled": Tiny(matrix="q4_tiled"),
    "tied": Tiny(tied=True, kv_heads=4),
    "biases": Tiny(qkv_bias=True, output_bias=True, kv_heads=1),
    "norms": Tiny(qk_norm=True, sandwich=True, arch={"norm_style": "gemma", "hidden_act": "gelu_tanh"}),
    "windows": Tiny(layers=3, arch={"sliding_window": 9, "sliding_window_pattern": 2, "rope_local_base_freq": 100.0}),
    "partial": Tiny(arch={"partial_rotary_factor": 0.5, "rope_freq_factors": [1.0, 2.0, 8.0]}),
    "scales": Tiny(
        arch={
            "embed_multiplier": 3.0,
            "query_pre_attn_scalar": 40,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 4.0,
            "logit_multiplier": 0.25,
        }
    ),
    "yarn": Tiny(arch={"yarn": {"factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.14}}),
    "head_dim": Tiny(hidden=96, head_dim=32, heads=6, kv_heads=3, width=160),
}


@pytest.mark.parametrize("kind", KINDS)
def test_exact_logits_are_those_of_the_reference(tmp_path: Path, kind: str) -> None:
    with cortiq.container.open(write_tiny(tmp_path / "m.cmf", KINDS[kind])) as file:
        loaded = build_plan(file, PlanOptions(mode="exact", threads=1))
        # The random layers amplify the last bits.
        assert max_relative_error(logits_of(loaded, TOKENS), reference(file, loaded)) < 5e-5


def test_outliers_in_another_order_give_the_same_logits(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.cmf", Tiny(matrix="q1s"))
    with cortiq.container.open(path) as file:
        expected = logits_of(build_plan(file, PlanOptions(threads=1)), TOKENS)
        name = "model.layers.0.mlp.up_proj.weight"
        entry, payload = file.tensors[name], bytearray(file[name].raw)
        start = layout("q1s").payload_nbytes(entry.shape)
        entries = [payload[at : at + 6] for at in range(start, len(payload), 6)]
        payload[start:] = b"".join(reversed(entries))
        assert payload != file[name].raw
    grow(path, remove=[name], add=[TensorSpec(name, entry.dtype, entry.shape, entry.nbytes, [payload])])
    with cortiq.container.open(path) as file:
        assert np.array_equal(logits_of(build_plan(file, PlanOptions(threads=1)), TOKENS), expected)


@pytest.mark.parametrize("kind", ["q8_row", "q4_tiled"])
def test_fast_logits_are_those_of_rounded_activations(tmp_path: Path, kind: str) -> None:
    """With keys and values in f32: rounding them to f16 would move other roundings and hide what is compared."""
    with cortiq.container.open(write_tiny(tmp_path / "m.cmf", KINDS[kind])) as file:
        info = build_plan(file, PlanOptions(mode="fast", threads=1)).info
        plan = _native.Plan(info.isa, "fast", 1, 128, 128, 128, 1, "f32")
        PlanBuilder(plan, file, info.facts).build()
        loaded = LoadedPlan(plan, info)

        def linear(x: NDArray[np.float32], name: str) -> NDArray[np.float32]:
            rounded = _native.quantize_dequantize("scalar", np.ascontiguousarray(x))
            product: NDArray[np.float32] = rounded @ file[name].numpy().T
            return product

        tokens = TOKENS[:8]
        found, plain = logits_of(loaded, tokens), reference(file, loaded)[:8]
        rounded = forward(info.facts, lambda name: file[name].numpy().astype(np.float32), tokens, linear)
    # Few rows, and by row: a value in the middle between two steps may fall to the other side, and the rows see that.
    off, effect = (np.median(np.linalg.norm(x - rounded, axis=1)) for x in (found, plain))
    assert off < 0.02 * effect
    assert np.linalg.norm(plain - rounded) < 0.06 * np.linalg.norm(plain)


def test_fast_logits_with_the_usual_cache_are_close(tmp_path: Path) -> None:
    with cortiq.container.open(write_tiny(tmp_path / "m.cmf", KINDS["q8_row"])) as file:
        loaded = build_plan(file, PlanOptions(mode="fast", threads=1))
        found, expected = logits_of(loaded, TOKENS), reference(file, loaded)
    assert np.linalg.norm(found - expected) < 0.06 * np.linalg.norm(expected)


def test_layers_of_different_widths(tmp_path: Path) -> None:
    weights = weights_of(Tiny())
    narrow = "model.layers.1.mlp."
    for part in ("gate", "up"):
        weights[f"{narrow}{part}_proj.weight"] = weights[f"{narrow}{part}_proj.weight"][:32]
    weights[f"{narrow}down_proj.weight"] = np.ascontiguousarray(weights[f"{narrow}down_proj.weight"][:, :32])
    with cortiq.container.open(write_tiny(tmp_path / "m.cmf", weights=weights)) as file:
        loaded = build_plan(file, PlanOptions(mode="exact", threads=1))
        assert max_relative_error(logits_of(loaded, TOKENS), reference(file, loaded)) < 1e-5


def test_a_plan_outlives_its_closed_file(tmp_path: Path) -> None:
    file = cortiq.container.open(write_tiny(tmp_path / "m.cmf"))
    loaded = build_plan(file, PlanOptions(mode="exact", threads=1))
    expected = reference(file, loaded)
    file.close()
    assert max_relative_error(logits_of(loaded, TOKENS), expected) < 1e-5


def test_defaults_are_filled_in(tmp_path: Path) -> None:
    with cortiq.container.open(write_tiny(tmp_path / "m.cmf", Tiny(max_positions=100))) as file:
        info = build_plan(file, PlanOptions()).info
    assert (info.mode, info.context, info.max_tokens, info.max_sequences) == ("fast", 100, 100, 1)
    assert info.threads >= 1
    assert info.isa in ("scalar", "avx2", "avx512")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"mode": "slow"}, "mode"),
        ({"isa": "mmx"}, "isa"),
        ({"threads": 0}, "threads"),
        ({"context": 101}, "context"),
        ({"context": 0}, "context"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_sequences": 0}, "max_sequences"),
    ],
)
def test_options_that_cannot_be_meant(tmp_path: Path, options: dict[str, Any], code: str) -> None:
    with cortiq.container.open(write_tiny(tmp_path / "m.cmf", Tiny(max_positions=100))) as file:
        with pytest.raises(UsageError) as caught:
            build_plan(file, PlanOptions(**options))
        assert caught.value.code == code


def test_a_skill_file_has_no_model(tmp_path: Path) -> None:
    skill = {"skills": [{"id": "sql", "name": "sql", "base_dir_hash": "0123456789abcdef"}]}
    with cortiq.container.open(write_tiny(tmp_path / "s.cmf", header=skill)) as file:
        assert file.header.is_skill_file
        with pytest.raises(UnsupportedArch) as caught:
            build_plan(file, PlanOptions())
        assert caught.value.code == "skill_file"
        assert "cortiq skill apply" in caught.value.message

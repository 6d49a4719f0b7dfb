"""Masks as data: decoding, the default, what is active, and writing them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.cmf import ARCH
from builders.mask_sections import info, ones, row, section
from cortiq.container import MaskInfo, MaskSet, encode_masks, new_mask, open_single
from cortiq.container.arch import Arch, read_arch
from cortiq.container.mask_meta import Quality, parse_mask_meta
from cortiq.container.masks import decode_masks
from cortiq.errors import CortiqError, Parse, UsageError

DATA = Path(__file__).parents[1] / "data" / "container"
GOLDEN: dict[str, Any] = json.loads((DATA / "sections" / "expected.json").read_text())
MOE = {"num_experts": 4, "top_k": 2, "moe_intermediate_size": 32}


def arch(**changes: object) -> Arch:
    return read_arch({**ARCH, **changes}, 0)


def read(data: bytes, of: Arch) -> MaskSet:
    return decode_masks(memoryview(data), parse_mask_meta(data, len(data), of, 0), 0)


def golden(name: str) -> tuple[bytes, Arch]:
    return (DATA / "sections" / f"{name}.masks").read_bytes(), read_arch(GOLDEN[name]["arch"], 0)


def mask_info(name: str = "code", task_id: int = 0, **changes: Any) -> MaskInfo:
    return MaskInfo(**{"task_id": task_id, "name": name, "sparsity": 0.0, "priority": "Normal", **changes})


def test_golden_lists_as_the_reference_does() -> None:
    for name in ("masks-f16", "moe2-masked", "moe3-masked"):
        masks = read(*golden(name))
        found = [
            [
                mask.name,
                int(round(mask.info.sparsity * 100, 6) + 0.5),
                f"{mask.info.quality.value:.3f} ({mask.info.quality.metric})" if mask.info.quality else "unmeasured",
                mask.active_layers,
            ]
            for mask in masks.values()
        ]
        stated = [[row[0], row[1], row[2], row[3]] for row in GOLDEN[name]["listed"]]
        assert [line[:1] + line[2:] for line in found] == [line[:1] + line[2:] for line in stated]
        assert all(abs(a[1] - b[1]) <= 1 for a, b in zip(found, stated, strict=True))  # halves round either way


def test_golden_bits_are_those_the_file_was_made_of() -> None:
    masks, made = read(*golden("masks-f16")), GOLDEN["masks-f16"]
    ffn = np.zeros((4, 150), np.bool_)
    for layer, active in enumerate(made["ffn_active"]):
        ffn[layer, active] = True
    heads, gates = np.array(made["heads"], np.bool_), np.array(made["gates"], np.bool_)
    for name, restricted in {"general": (), "ffn": ("ffn",), "heads": ("heads",), "gate": ("gates",)}.items():
        mask = masks[name]
        assert np.array_equal(mask.ffn[0], ffn if "ffn" in restricted else np.ones_like(ffn))
        assert np.array_equal(mask.heads, heads if "heads" in restricted else np.ones_like(heads))
        assert np.array_equal(mask.gates, gates if "gates" in restricted else np.ones_like(gates))
        assert mask.experts is None
        assert mask.is_open is not bool(restricted)
    every = masks["all"]
    assert np.array_equal(every.ffn[0], ffn)
    assert np.array_equal(every.heads, heads)
    assert np.array_equal(every.gates, gates)
    assert masks.default is masks["general"]


def test_golden_experts() -> None:
    masks = read(*golden("moe3-masked"))
    mask = masks["text"]
    assert masks.default is None
    assert mask.experts is not None
    assert mask.experts.shape == (4, 8)
    assert mask.inactive_shares()["experts"] == mask.info.sparsity == 0.5625
    mask.check_experts()


def test_golden_loops_have_rows_for_every_visit() -> None:
    with open_single(DATA / "loop.skill.cmf") as file:
        assert file.masks is not None
        mask = file.masks["specialist"]
        assert mask.ffn.shape == (2, 4, 160)
        assert not np.array_equal(mask.ffn_row(0), mask.ffn_row(4))
        assert mask.heads.shape == (4, 4)
        assert mask.active_layers * file.arch.num_loops == 8
        assert mask.inactive_shares()["ffn"] == pytest.approx(mask.info.sparsity, abs=1e-6)


@pytest.mark.parametrize("name", ["moe2-masked", "moe3-masked", "looped-baked"])
def test_golden_is_written_again_byte_for_byte(name: str) -> None:
    data, of = golden(name)
    assert encode_masks(read(data, of), of) == data


def test_golden_of_another_json_style_keeps_its_content() -> None:
    data, of = golden("masks-f16")
    masks = read(data, of)
    again = read(encode_masks(masks, of), of)
    assert list(again.infos.values()) == list(masks.infos.values())
    for name in masks:
        assert np.array_equal(again[name].ffn, masks[name].ffn)
        assert np.array_equal(again[name].heads, masks[name].heads)
        assert np.array_equal(again[name].gates, masks[name].gates)
    assert encode_masks(again, of) == encode_masks(masks, of)


def test_rows_that_are_missing_are_all_ones() -> None:
    of = arch(num_loops=2, moe=MOE)
    off = np.zeros(96, np.bool_)
    mask = new_mask(of, mask_info(), ffn={3: off}, experts={1: np.array([True, False, True, False])})
    assert mask.ffn.shape == (2, 2, 96)
    assert [bool(mask.ffn_row(visit).any()) for visit in range(4)] == [True, True, True, False]
    assert mask.heads.all()
    assert mask.gates.all()
    assert mask.experts is not None
    assert mask.experts.tolist() == [[True] * 4, [True, False, True, False]]
    assert not mask.is_open
    assert new_mask(of, mask_info()).is_open
    assert not mask.ffn.flags.writeable


def test_writing_and_reading_are_opposites() -> None:
    of = arch(intermediate_size=37, num_loops=3, moe=MOE)
    rng = np.random.default_rng(5)
    quality = Quality(metric="ppl", value=0.9, n_samples=3)
    masks = [
        new_mask(
            of,
            mask_info(f"m{i}", i, sparsity=i / 3, quality=quality if i else None, parent="m0" if i else None),
            ffn={visit: rng.integers(0, 2, 37).astype(np.bool_) for visit in range(6)},
            heads={1: np.array([True, False, False, True])},
            gates=np.array([True, False]),
            experts={0: np.array([False, True, True, False])} if i else None,
        )
        for i in range(12)
    ]
    data = encode_masks(MaskSet.of(masks, "m3"), of)
    again = read(data, of)
    assert again.default_task == "m3"
    assert not list(again.tails())
    for mask in masks:
        found = again[mask.name]
        assert np.array_equal(found.ffn, mask.ffn)
        assert np.array_equal(found.heads, mask.heads)
        assert np.array_equal(found.gates, mask.gates)
        assert (found.experts is None) == (mask.experts is None)
        assert found.info.quality == mask.info.quality
        assert found.info.parent == mask.info.parent
        assert found.info.sparsity == pytest.approx(mask.info.sparsity)
    assert encode_masks(again, of) == data


def test_rows_once_for_each_layer_hold_for_every_pass() -> None:
    of = arch(num_loops=1000)
    bits = row([1] * 95 + [0]) + row([0] + [1] * 95) + ones((2, 4), (1, 2))
    mask = read(section((info(), bits)), of)["code"]
    assert mask.ffn.shape == (1, 2, 96)
    assert np.array_equal(mask.ffn_row(0), mask.ffn_row(998))
    assert np.array_equal(mask.ffn_row(1), mask.ffn_row(999))
    written = read(encode_masks(MaskSet.of([mask], "code"), of), of)["code"]
    assert written.ffn.shape == (1000, 2, 96)
    assert np.array_equal(written.ffn_row(777), mask.ffn_row(1))


@pytest.mark.parametrize("area", ["ffn", "head", "gate", "expert"])
def test_e7_tail_bits_are_dropped_and_told(area: str) -> None:
    of = arch(intermediate_size=17, moe=MOE)
    bits = bytearray(ones((2, 17), (2, 4), (1, 2), (2, 4)))
    at = {"ffn": 5, "head": 7, "gate": 8, "expert": 10}[area]
    bits[at] |= 0x80
    masks = read(section((info(has_expert_fields=True), bytes(bits))), of)
    (problem,) = masks.tails()
    assert isinstance(problem, Parse)
    assert (problem.code, problem.offset) == ("mask_tail", 1024 + at)
    assert area in problem.message
    assert masks["code"].is_open
    assert read(encode_masks(masks, of), of)["code"].is_open


def test_e8_nothing_active_is_a_mask_all_the_same() -> None:
    of = arch(moe=MOE)
    mask = read(section((info(has_expert_fields=True), bytes(27 + 2))), of)["code"]
    shares = mask.inactive_shares()
    assert shares == {"ffn": 1.0, "heads": 1.0, "layers": 1.0, "experts": 1.0}
    assert mask.active_layers == 0
    with pytest.raises(Parse) as caught:
        mask.check_experts()
    assert caught.value.code == "mask_empty_experts"


@given(st.data())
def test_any_bytes_give_one_error_or_masks(data: st.DataObject) -> None:
    whole, of = golden(data.draw(st.sampled_from(["masks-f16", "moe3-masked", "looped-baked"])))
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    try:
        masks = read(bytes(raw), of)
    except CortiqError:
        return
    list(masks.tails())
    again = read(encode_masks(masks, of), of)
    for name, mask in masks.items():
        assert np.array_equal(again[name].ffn, mask.ffn)
        assert mask.inactive_shares() == again[name].inactive_shares()


def test_masks_are_decoded_once() -> None:
    masks = read(*golden("masks-f16"))
    assert masks["ffn"] is masks["ffn"]
    assert "none" not in masks
    with pytest.raises(KeyError):
        masks["none"]
    assert repr(masks["gate"]) == "Mask('gate', 3 of 4 layers)"
    assert "default 'general'" in repr(masks)


@pytest.mark.parametrize(
    "rows",
    [
        {"ffn": {0: np.ones(95, np.bool_)}},
        {"ffn": {2: np.ones(96, np.bool_)}},
        {"ffn": {-1: np.ones(96, np.bool_)}},
        {"heads": {0: np.ones(4, np.uint8)}},
        {"gates": np.ones(3, np.bool_)},
        {"experts": {}},
    ],
)
def test_rows_that_do_not_fit(rows: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        new_mask(arch(), mask_info(), **rows)
    assert caught.value.code == "mask_shape"


def test_masks_of_another_model_are_not_written() -> None:
    masks = MaskSet.of([new_mask(arch(), mask_info())], "code")
    for other in (arch(intermediate_size=64), arch(num_attention_heads=8), arch(num_loops=2, intermediate_size=48)):
        with pytest.raises(UsageError) as caught:
            encode_masks(masks, other)
        assert caught.value.code == "mask_shape"


def test_two_masks_of_one_name_or_id() -> None:
    masks = [new_mask(arch(), mask_info()), new_mask(arch(), mask_info())]
    with pytest.raises(UsageError) as caught:
        MaskSet.of(masks, "code")
    assert caught.value.code == "mask_name"
    twins = MaskSet.of([masks[0], new_mask(arch(), mask_info("other"))], "code")
    with pytest.raises(CortiqError) as refused:
        encode_masks(twins, arch())
    assert refused.value.kind == "Parse.mask_meta"

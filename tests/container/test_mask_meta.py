"""Every refusal of the masks section (SPEC 5, 5.1), by the ids of the hostile-file catalogue."""

from __future__ import annotations

import json
import struct
from dataclasses import replace

import pytest

from builders.cmf import ARCH, Cmf, two_layers
from builders.mask_sections import info, ones, raw, section
from cortiq.container import mask_meta

MOE = {"num_experts": 4, "top_k": 2, "moe_intermediate_size": 32}
BITS = ones((2, 96), (2, 4), (1, 2))
EXPERTS = ones((2, 4))


def with_masks(masks: bytes, **arch: object) -> Cmf:
    made = two_layers()
    fields = {**made.header, "arch": {**ARCH, **arch}}
    return replace(made, header=fields, masks=masks, data=bytearray()).build()


def one(**changes: object) -> bytes:
    return section((info(**changes), BITS))


def meta_of(masks: bytes) -> str:
    return masks[8 : 8 + struct.unpack_from("<II", masks)[1]].decode()


def patched(meta: bytes) -> bytes:
    return raw(meta, BITS, 4096, 1)


def test_a_section_opens(opened):
    file = opened(with_masks(section((info("a"), BITS), (info("b", 7, parent="a", priority="Primary"), BITS))))
    assert list(file.masks) == ["a", "b"]
    found = file.masks.infos["b"]
    assert (found.task_id, found.parent, found.priority, found.sparsity) == (7, "a", "Primary", 0.5)
    assert (found.quality, found.description, found.has_hot_pack) == (None, None, False)


def test_no_masks_and_any_default(opened):
    file = opened(with_masks(section(default_task="")))
    assert (len(file.masks), file.masks.default_task, file.masks.default) == (0, "", None)


def test_quality_is_a_contract(opened):
    stated = {"metric": "ppl", "value": 0.97, "n_samples": 512, "dataset_sha256": "ab", "by": "x"}
    quality = opened(with_masks(one(quality=stated))).masks["code"].info.quality
    assert (quality.metric, quality.value, quality.baseline_dense, quality.n_samples) == ("ppl", 0.97, None, 512)
    assert dict(quality.extra) == {"by": "x"}


def test_unknown_keys_are_kept(opened):
    masks = opened(with_masks(section((info(made_by=[1]), BITS), tool="x"))).masks
    assert dict(masks.extra) == {"tool": "x"}
    assert dict(masks.infos["code"].extra) == {"made_by": (1,)}


def test_e1_too_short_for_its_counts(refuse):
    assert refuse(with_masks(b"\1\0\0\0"), "Bounds.mask_count").found == 4


@pytest.mark.parametrize("count", [0, 2, 0xFFFFFFFF])
def test_e1_count(refuse, count):
    assert refuse(with_masks(struct.pack("<I", count) + one()[4:]), "Parse.mask_count").found == count


@pytest.mark.parametrize("more", [1, 100, 0xFFFFFFFF])
def test_e2_meta_beyond_the_section(refuse, more):
    masks = one()
    nbytes = min(len(masks) - 8 + more, 0xFFFFFFFF)
    refuse(with_masks(masks[:4] + struct.pack("<I", nbytes) + masks[8:]), "Bounds.mask_meta")


def test_e2_meta_too_large(refuse, monkeypatch):
    monkeypatch.setattr(mask_meta, "MAX_META", 100)
    refuse(with_masks(one()), "Limit.mask_meta")


@pytest.mark.parametrize(
    ("meta", "kind"),
    [
        (b'{"x": "\xff"}', "Parse.utf8"),
        ('{"x": 1}'.encode("utf-16"), "Parse.utf8"),
        (b"[" * 1000, "Parse.depth"),
        (b'{"masks": [], "masks": []}', "Parse.dup_key"),
        (b'{"x": NaN}', "Parse.nonfinite"),
        (b'{"x": 1e400}', "Parse.nonfinite"),
        (b'{"x": ' + b"1" * 5000 + b"}", "Parse.int_range"),
        (b'{"masks": [],}', "Parse.json"),
        (b"{}{}", "Parse.json"),
        (b"", "Parse.json"),
        (b"[]", "Parse.mask_meta"),
        (b"null", "Parse.mask_meta"),
        (b"{}", "Parse.mask_meta"),
        (b'{"default_task": "a"}', "Parse.mask_meta"),
        (b'{"masks": []}', "Parse.mask_meta"),
        (b'{"default_task": "a", "masks": {}}', "Parse.mask_meta"),
        (b'{"default_task": "a", "masks": [1]}', "Parse.mask_meta"),
    ],
)
def test_e3_meta(refuse, meta, kind):
    assert refuse(with_masks(patched(meta)), kind).section == "masks"


def test_e3_default_task_is_text(refuse):
    refuse(with_masks(section((info(), BITS), default_task=None)), "Parse.mask_meta")


@pytest.mark.parametrize("key", ["task_id", "name", "sparsity", "priority"])
def test_e3_required_keys(refuse, key):
    entry = {"name": "code", **info()}
    text = json.dumps({"default_task": "", "masks": [{k: v for k, v in entry.items() if k != key}]})
    assert key in refuse(with_masks(patched(text.encode())), "Parse.mask_meta").message


@pytest.mark.parametrize(
    "change",
    [
        {"task_id": -1},
        {"task_id": 2**32},
        {"task_id": 1.0},
        {"name": 3},
        {"sparsity": "0.5"},
        {"priority": "High"},
        {"priority": None},
        {"description": 1},
        {"parent": 0},
        {"has_hot_pack": None},
        {"has_expert_fields": 1},
        {"blob_off": "1024"},
        {"blob_off": None},
        {"blob_off": True},
        {"blob_len": 27.0},
    ],
)
def test_e3_types(refuse, change):
    refuse(with_masks(one(**change)), "Parse.mask_meta")


def test_e3_experts_without_moe(refuse):
    refuse(with_masks(one(has_expert_fields=True)), "Parse.mask_meta")


@pytest.mark.parametrize("offset", [4, 8, 1028, -8, 2**64 - 8, 10**6 * 8])
def test_e4_place(refuse, offset):
    refuse(with_masks(one(blob_off=offset)), "Bounds.mask_blob")


def test_e4_beyond_the_end(refuse):
    refuse(with_masks(one()[:-6]), "Bounds.mask_blob")  # five bytes of padding and one of the mask


@pytest.mark.parametrize("nbytes", [len(BITS) - 1, len(BITS) + 1, 0, -1, 2**70])
def test_e5_length(refuse, nbytes):
    refuse(with_masks(one(blob_len=nbytes)), "Bounds.mask_len")


@pytest.mark.parametrize(("flag", "bits"), [(True, BITS), (False, BITS + EXPERTS)])
def test_e5_length_against_the_flag(refuse, flag, bits):
    masks = section((info(has_expert_fields=flag), bits))
    refuse(with_masks(masks, moe=MOE), "Bounds.mask_len")


def test_e5_nominal_numbers_size_the_bits(opened):
    """Heads per layer and tensor shapes do not."""
    arch = {"attention_heads_per_layer": [2, 8], "moe": MOE}
    file = opened(with_masks(section((info(has_expert_fields=True), BITS + EXPERTS)), **arch))
    assert file.masks["code"].heads.shape == (2, 4)
    assert file.masks["code"].experts.shape == (2, 4)


@pytest.mark.parametrize("offset", [1024, 1024 + 24])
def test_e6_overlap(refuse, offset):
    masks = section((info("a"), BITS), (info("b", 1, blob_off=offset), BITS))
    refuse(with_masks(masks), "Bounds.mask_overlap")


@pytest.mark.parametrize("second", [{"name": "b", "task_id": 0}, {"name": "a", "task_id": 1}])
def test_e9_keys_are_unique(refuse, second):
    refuse(with_masks(section((info("a"), BITS), (info(**second), BITS))), "Parse.mask_meta")


@pytest.mark.parametrize(
    "quality", [1.0, "good", [], {}, {"metric": "ppl"}, {"value": 1.0}, {"metric": 1, "value": 1}, True]
)
def test_e9_quality_is_no_declaration(refuse, quality):
    refuse(with_masks(one(quality=quality)), "Parse.mask_meta")


@pytest.mark.parametrize("parents", [("a", None, None), ("b", "a", None), ("b", "c", "a"), (None, "c", "b")])
def test_e9_parent_cycle(refuse, parents):
    masks = [(info(name, i, parent=parent), BITS) for i, (name, parent) in enumerate(zip("abc", parents, strict=True))]
    refuse(with_masks(section(*masks)), "Parse.mask_meta")


def test_e9_long_chains_of_parents_are_fine(opened):
    count = 3000
    masks = [(info(str(i), i, parent=str(i + 1)), BITS) for i in range(count)]
    assert len(opened(with_masks(section(*masks, start=2**20))).masks) == count


def test_e9_default_task_need_not_name_a_mask(opened):
    assert opened(with_masks(section((info(), BITS), default_task="general"))).masks.default is None


def test_e12_names_are_only_names(opened):
    name = "a/../b\x1b[2J" + "x" * 1_000_000
    assert opened(with_masks(section((info(name), BITS), start=2**22))).masks[name].name == name


def test_meta_reads_as_stated():
    assert '"priority": "Normal"' in meta_of(one())

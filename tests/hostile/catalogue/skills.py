"""I: skills and standalone skill files (SPEC 9, 9.1)."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from builders.cmf import ARCH, F16, Cmf, T, header, pattern, two_layers
from cortiq.container import File, TensorSpec, grow
from cortiq.engine.blend import blend_weights
from cortiq.errors import CortiqError
from hostile.damage import fields
from hostile.row import HEADER_HASH, Case, Damage, Row

HIDDEN = 64
NORM = "model.norm.weight"
NAN = b"\x00\x7e"
BASE_HASH = "9f22593eb458bc6f"
KEY = f"{two_layers().get('dir_hash'):016x}"


def b64(values: int, value: bytes = b"\0\0") -> str:
    """So many times an f16 value."""
    return base64.b64encode(value * values).decode()


SELECTION = {"metric": "mse", "phi_layer": 1, "mean": b64(HIDDEN), "basis": b64(2 * HIDDEN), "rank": 2}


def skill(name: str = "sql", **more: Any) -> dict[str, Any]:
    return {"id": name, "name": name, "layers": [0], **more}


def registry(*records: Any) -> Damage:
    return fields(skills=list(records))


def with_skill(record: dict[str, Any] | None, *tensors: T) -> Damage:
    """A registry of one record, or none, and tensors beyond those of the base file."""

    def damage(cmf: Cmf) -> Cmf:
        changed = {**cmf.header, "skills": [] if record is None else [record]}
        return replace(cmf, header=changed, tensors=[*cmf.tensors, *tensors], data=bytearray()).build()

    return damage


def replacing(name: str, length: int = HIDDEN, owner: str = "sql") -> T:
    return T(f"skill.{owner}.{name}", F16, (length,), pattern(2 * length, 9))


def skill_file(base: Any, features: int = 0b1000001) -> Damage:
    """A standalone skill file."""
    return lambda _: Cmf(header(skills=[{"id": "a", "base_dir_hash": base}]), [], features=features).build()


def selection(**changes: Any) -> Damage:
    return registry(skill(selection={**SELECTION, **changes}))


def ten_thousand(cmf: Cmf) -> Cmf:
    return fields(skills=[skill(f"s{i}") for i in range(10_000)])(cmf)


def contending(cmf: Cmf) -> Cmf:
    """Three skills that replace one tensor."""
    names = ("a", "b", "c")
    changed = {**cmf.header, "skills": [skill(name) for name in names]}
    tensors = [*cmf.tensors, *(replacing(NORM, owner=name) for name in names)]
    return replace(cmf, header=changed, tensors=tensors, data=bytearray()).build()


def beside(key: str, name: str = "sql") -> Callable[[Path], Path]:
    """``skill.cmf`` beside the file, cut against the base with this directory."""

    def place(path: Path) -> Path:
        record = {"id": name, "base_dir_hash": key}
        made = Cmf(header(skills=[record]), [T(NORM, F16, (HIDDEN,), pattern(2 * HIDDEN, 9))], features=0b1000001)
        made.build().save(path.with_name("skill.cmf"))
        return path

    return place


def itself(path: Path) -> Path:
    """The file is its own skill."""
    path.with_name("skill.cmf").symlink_to(path)
    return path


def grown(path: Path) -> Path:
    """Another skill came since the base of ``skill.cmf``."""
    beside(KEY)(path)
    grow(path, add=[TensorSpec(f"skill.b.{NORM}", F16, (HIDDEN,), 2 * HIDDEN, [pattern(2 * HIDDEN, 8)])])
    return path


def other_weights(cmf: Cmf) -> Cmf:
    return cmf.put(cmf.get("data_off") + cmf.get_record(1, "off"), b"\1\2\3\4")


def blends(energies: list[float], temperature: float, weights: list[float]) -> Callable[[File], bool]:
    """Whether energies become these weights, none of them NaN."""
    return lambda _: blend_weights(energies, temperature).tolist() == weights


def refuses(energies: list[float], temperature: float, kind: str) -> Callable[[File], bool]:
    """Whether energies are refused with this error."""

    def holds(_: File) -> bool:
        try:
            blend_weights(energies, temperature)
        except CortiqError as error:
            return error.kind == kind
        return False

    return holds


ROWS = (
    Row(
        "I1",
        "skill ids that are part of a path, or of a longer name",
        [
            *(registry(skill(name)) for name in ("", ".", "..", "a.b", "a/b", "a\\b/c", "../x")),
            *(
                Case(place=beside(KEY, name), expected=("O ok", "K Parse.skill_id"), raw="")
                for name in ("a\\b", "s" * 200, "a\0", "Ａ", "sql ", "-", "_a")
            ),
        ],
        expected="O Parse.skill_id",
        raw=HEADER_HASH,
        needs="skills",
    ),
    Row(
        "I2",
        "two records of one id",
        [registry(skill("a"), skill("a"))],
        expected="O Parse.skill_dup",
        raw=HEADER_HASH,
        needs="skills",
    ),
    Row(
        "I3",
        "tensors without a record, a record without tensors",
        [
            with_skill(None, replacing(NORM)),
            Case(with_skill(skill()), expected=("O ok", "V warning Parse.skill_empty")),
        ],
        expected=("O ok", "V warning Parse.skill_unregistered"),
        needs="skills",
        later="running an unknown skill",
    ),
    Row(
        "I4",
        "a replacement of another shape, or of nothing",
        [with_skill(skill(), replacing(NORM, 32)), with_skill(skill(), replacing("model.nothing.weight"))],
        expected=("O ok", "V Parse.skill_shape"),
        needs="skills",
    ),
    Row(
        "I5",
        "records that are none; bit 6 and base_dir_hash against each other",
        [
            *(fields(skills=value) for value in ({}, "x", [1], None)),
            Case(registry({"id": "a", "base_dir_hash": "00"}), expected="O Parse.skill_file"),
            Case(skill_file(None), expected="O Parse.skill_file", raw=""),
            *(
                Case(skill_file(value), expected="O Parse.skill_file", raw="", needs="skills")
                for value in ("", "xyz", "0" * 17, "0x12", 5)
            ),
            Case(
                skill_file(BASE_HASH),
                expected="O ok",
                raw="O ok",
                holds=lambda file: file.header.is_skill_file,
            ),
        ],
        expected="O Parse.skill",
        raw=HEADER_HASH,
    ),
    Row(
        "I6",
        "running a standalone skill file",
        [skill_file(BASE_HASH)],
        expected=("O ok", "R UnsupportedArch.skill_file"),
    ),
    Row(
        "I7",
        "a skill added to another base, to itself, to a shard, to a base that has grown",
        [
            Case(other_weights, place=beside(KEY), expected="K BaseMismatch.base", says="another model"),
            Case(
                fields(arch={**ARCH, "rope_theta": 5.0}), place=beside("0" * 15 + "1"), expected="K BaseMismatch.base"
            ),
            Case(skill_file(BASE_HASH), place=itself, expected="K UsageError.same_file"),
            Case(skill_file(BASE_HASH), place=beside(KEY), expected="K UsageError.skill_base"),
            Case(fields(shard={"no": 1, "count": 2}), place=beside(KEY), expected="K Shard.base"),
            Case(fields(shard={"no": 2, "count": 2}), place=beside(KEY), expected="K Shard.base"),
            Case(contending, place=beside(KEY), expected="K BaseMismatch.grown", says="has grown"),
            Case(place=grown, expected="K BaseMismatch.grown", says="has grown"),
            Case(place=beside(KEY), expected="K ok"),
        ],
        needs="skill_file",
    ),
    Row(
        "I8",
        "routing parameters that do not fit the model",
        [
            *(selection(mean=value) for value in ("***", b64(HIDDEN)[:-3] + "A==", b64(HIDDEN - 1), "", 3)),
            *(selection(basis=value) for value in (b64(2 * HIDDEN - 1), "***")),
            selection(phi_layer=-1),
            *(
                Case(selection(**{name: value}), expected=("O ok", "V warning Parse.selection"))
                for name, value in (("phi_layer", 2), ("mean", b64(HIDDEN, NAN)), ("metric", "none"))
            ),
            Case(selection(), expected="O ok"),
        ],
        expected="O Parse.selection",
        raw=HEADER_HASH,
        needs="skills",
        later="that routing falls back with a warning",
    ),
    Row(
        "I9",
        "layers of a skill: only information",
        [registry(skill(layers=value)) for value in ([0, "...", 1], [-1], list(range(100_000)))],
        expected=("O ok", "V warning Parse.skill_layers"),
        raw=HEADER_HASH,
        needs="skills",
    ),
    Row(
        "I10",
        "ten thousand skills; three that replace one tensor",
        [Case(ten_thousand, raw=HEADER_HASH), contending],
        expected="O ok",
        needs="skills",
        later="that only the active one is used",
    ),
    Row(
        "I11",
        "blending with energies that are equal or not finite",
        [
            *(
                Case(holds=blends(energies, temperature, weights))
                for energies, temperature, weights in (
                    ([0.5, 0.5], 0.4, [0.5, 0.5]),
                    ([0.5, 0.5, 0.5], 0.0, [1, 0, 0]),
                    ([0.7, 0.2], 0.0, [0, 1]),
                    ([0.7, 0.2], 5e-324, [0, 1]),
                    ([1e308, -1e308], 1.0, [0, 1]),
                    ([0.7, 0.2], math.inf, [0.5, 0.5]),
                    ([0.7], 0.4, [1]),
                )
            ),
            *(
                Case(holds=refuses(energies, temperature, kind))
                for energies, temperature, kind in (
                    ([0.5, math.nan], 0.4, "NonFinite.energy"),
                    ([math.inf, 0.1], 0.0, "NonFinite.energy"),
                    ([0.5, 0.1], -1.0, "UsageError.temperature"),
                    ([0.5, 0.1], math.nan, "UsageError.temperature"),
                    ([], 0.4, "UsageError.blend"),
                )
            ),
        ],
        expected="O ok",
    ),
)

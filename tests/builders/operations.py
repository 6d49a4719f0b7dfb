"""Every way the package changes a file, to be killed, failed and cut in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from builders.cmf import header, pattern, two_layers
from cortiq.container import File, TensorSpec, grow, open_single, write_file
from cortiq.container.shard_writer import write_shards
from cortiq.edit.compact import compact
from cortiq.edit.history import undo
from cortiq.edit.metadata import edit_header

# Another section of two masks than that of ``two_layers``.
OTHER_MASKS = two_layers().masks.replace(b'"code"', b'"cope"')
State = tuple[bytes, tuple[tuple[str, int, tuple[int, ...], bytes], ...], tuple[bytes, ...]]


def tensor(name: str, nbytes: int = 9000, seed: int = 1) -> TensorSpec:
    """A u8 tensor to be written, in two chunks."""
    payload = pattern(nbytes, seed)
    return TensorSpec(name, 6, (nbytes,), nbytes, [payload[: nbytes // 3], payload[nbytes // 3 :]])


def base(path: Path) -> Path:
    """A file with every kind of section and a skill, that grew once already."""
    two_layers().save(path)
    grow(path, add=[tensor("w.x"), tensor("w.y", 70), tensor("skill.a.w.x", 9000, 9)], header=registered("a"))
    return path


def registered(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Adds a record to the registry of skills."""

    def change(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "skills": [*fields.get("skills", []), {"id": name, "layers": [0]}]}

    return change


def append(path: Path) -> None:
    grow(path, add=[tensor("skill.b.w.x"), tensor("skill.b.w.y", 70, 3)], header=registered("b"), masks=OTHER_MASKS)


def edit(path: Path) -> None:
    edit_header(path, {"tokenizer_config.chat_template": "{{ other }}" * 500})


def write(path: Path) -> None:
    write_file(path, header(provenance={"tool": "new"}), [tensor("a"), tensor("b", 5000, 4)], vocab=b"{}")


def write_set(path: Path) -> None:
    """A model as a set of three files, whose names begin with that of ``path``."""
    specs = [tensor("a"), tensor("b", 5000, 4), tensor("c", 9000, 6)]
    write_shards(path, header(provenance={"tool": "new"}), specs, 36_000, vocab=b"{}")


OPERATIONS: dict[str, Callable[[Path], object]] = {
    "append": append,
    "edit": edit,
    "undo": undo,
    "compact": compact,
    "write": write,
}


# Named apart: what they leave is not one file.
SETS: dict[str, Callable[[Path], object]] = {"set": write_set}


def state(file: File) -> State:
    """Everything a reader sees of a file but where it lies."""
    tensors = tuple((n, e.dtype, e.shape, bytes(file[n].raw)) for n, e in file.tensors.items())
    sections = tuple(bytes(file.section(name) or b"") for name in ("masks", "vocab", "index"))
    return file.header.raw, tensors, sections


def state_of(path: Path) -> State:
    with open_single(path) as file:
        return state(file)

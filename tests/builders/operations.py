"""Every way the package changes a file, to be killed, failed and cut in the middle."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from builders.cmf import ARCH, F16, header, pattern, two_layers
from builders.tiny import Tiny, weights_of
from cortiq.container import File, TensorSpec, grow, open_single, write_file
from cortiq.container import open as open_model
from cortiq.container.shard_writer import write_shards
from cortiq.convert import ConvertOptions, Receipt, convert
from cortiq.edit import requant
from cortiq.edit.compact import compact
from cortiq.edit.history import checkout, undo
from cortiq.edit.mask_source import mask_source
from cortiq.edit.masks import add_mask, remove_mask
from cortiq.edit.metadata import edit_header
from cortiq.edit.skills import add_skill, open_skill, remove_skill
from cortiq.errors import Shard
from cortiq.quantize import Override

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
    skill = tensor("skill.a.w.x", 9000, 9)
    grow(path, add=[tensor("w.x"), tensor("w.y", 70), matrix("w.m"), skill], header=registered("a"))
    return path


def matrix(name: str) -> TensorSpec:
    """A matrix of f16 that another dtype can hold."""
    values = np.linspace(-1, 1, 32 * 64).astype(np.float16).reshape(32, 64)
    return TensorSpec(name, F16, values.shape, values.nbytes, [values])


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


def skill_add(path: Path) -> None:
    with open_skill(_sources() / "skill") as source:
        add_skill(path, source)


def skill_file_replaces(path: Path) -> None:
    with open_skill(_sources() / "skill.cmf") as source:
        add_skill(path, source, overwrite=True, force=True)


def skill_remove(path: Path) -> None:
    remove_skill(path, "a")


def masks_add(path: Path) -> None:
    add_mask(path, "half", mask_source(_sources() / "mask.json"))


def masks_remove(path: Path) -> None:
    remove_mask(path, "code")


def first_version(path: Path) -> None:
    checkout(path, 1)


def requant_in_place(path: Path) -> None:
    """Only the matrix that was made for it: the others hold patterns that are no weights."""
    kept = ("layers.0.mlp=q4_tiled", "layers.1.mlp=f32", "embed=q8_row", "w.m=q8_row")
    rules = tuple(Override(re.compile(name), dtype) for name, _, dtype in (rule.partition("=") for rule in kept))
    requant(path, None, ConvertOptions(overrides=rules))


def convert_over(path: Path) -> None:
    convert(_sources() / "checkpoint", path, ConvertOptions(force=True, allow_no_tokenizer=True))


def convert_in_attempts(path: Path) -> Receipt:
    """Goes on with what an interrupted one left; every tensor is recorded when it is finished."""
    options = ConvertOptions(force=True, allow_no_tokenizer=True, resume=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cortiq.container.partial.SAVE_EVERY", 1)
        return convert(_sources() / "checkpoint", path, options)


OPERATIONS: dict[str, Callable[[Path], object]] = {
    "append": append,
    "edit": edit,
    "undo": undo,
    "checkout": first_version,
    "compact": compact,
    "write": write,
    "skill-add": skill_add,
    "skill-replace": skill_file_replaces,
    "skill-remove": skill_remove,
    "masks-add": masks_add,
    "masks-remove": masks_remove,
    "requant": requant_in_place,
    "convert": convert_over,
}


# Named apart: what they leave when they are interrupted is not one file.
SETS: dict[str, Callable[[Path], object]] = {"set": write_set}
ATTEMPTS: dict[str, Callable[[Path], object]] = {"attempts": convert_in_attempts}


@cache
def _sources() -> Path:
    """A folder with what operations read: a skill as folder and as file, a mask, a checkpoint of one layer."""
    folder = Path(tempfile.mkdtemp(prefix="cortiq-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "skill" / "tensors").mkdir(parents=True)
    np.save(folder / "skill" / "tensors" / "w.m.npy", np.ones((32, 64), np.float32))
    np.save(folder / "skill" / "tensors" / "model.norm.weight.npy", np.ones(64, np.float32))
    (folder / "skill" / "skill.json").write_text('{"id": "new", "name": "New"}')
    bound = header(skills=[{"id": "a", "base_dir_hash": "1", "task": "code"}])
    write_file(folder / "skill.cmf", bound, [tensor("w.x", 9000, 5)], masks=OTHER_MASKS.replace(b'"cope"', b'"code"'))
    (folder / "mask.json").write_text('{"layer_gates": [1, 0]}')
    _write_checkpoint(folder / "checkpoint")
    return folder


def _write_checkpoint(folder: Path) -> None:
    folder.mkdir()
    tiny = Tiny(hidden=32, width=32, layers=1, heads=2, kv_heads=1, vocab=40)
    config = {
        "model_type": "llama",
        "hidden_size": tiny.hidden,
        "intermediate_size": tiny.width,
        "num_hidden_layers": tiny.layers,
        "num_attention_heads": tiny.heads,
        "num_key_value_heads": tiny.kv_heads,
        "head_dim": tiny.head_dim,
        "vocab_size": tiny.vocab,
        "max_position_embeddings": ARCH["max_position_embeddings"],
        "rms_norm_eps": ARCH["rms_norm_eps"],
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights_of(tiny), folder / "model.safetensors")


def state_of_set(folder: Path) -> State | str:
    """What is read of the set that ``write_set`` wrote into a folder as ``set``, or why there is none."""
    try:
        with open_model(folder / "set-00001-of-00003.cmf") as file:
            return state(file)
    except FileNotFoundError:
        return "none"
    except Shard as error:
        return error.kind


def state(file: File) -> State:
    """Everything a reader sees of a file but where it lies."""
    tensors = tuple((n, e.dtype, e.shape, bytes(file[n].raw)) for n, e in file.tensors.items())
    sections = tuple(bytes(file.section(name) or b"") for name in ("masks", "vocab", "index"))
    return file.header.raw, tensors, sections


def state_of(path: Path) -> State:
    with open_single(path) as file:
        return state(file)

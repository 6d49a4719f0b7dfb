"""Skills outside of the files they are added to: folders, and standalone files cut against a base."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.container import File, MaskSet, TensorSpec, encode_masks, write_file
from cortiq.container.skill_file import dir_key
from cortiq.container.skills import split_name
from cortiq.layouts import layout

GATE = "model.layers.0.mlp.gate_proj.weight"
UP = "model.layers.1.mlp.up_proj.weight"
NORM = "model.norm.weight"


def folder(path: Path, weights: Mapping[str, NDArray[Any]], record: Mapping[str, Any] | None = None) -> Path:
    """A folder with these weights and, unless None, this skill.json."""
    (path / "tensors").mkdir(parents=True, exist_ok=True)
    for name, values in weights.items():
        np.save(path / "tensors" / f"{name}.npy", values)
    if record is not None:
        (path / "skill.json").write_text(json.dumps(record))
    return path


def changed(base: File, names: tuple[str, ...] = (GATE, UP, NORM), seed: int = 1) -> dict[str, NDArray[np.float32]]:
    """Other weights for some tensors of ``base``, which f16 can hold."""
    rng = np.random.default_rng(seed)
    values = {name: rng.standard_normal(base.tensors[name].shape) for name in names}
    return {name: array.astype(np.float16).astype(np.float32) for name, array in values.items()}


def standalone(
    path: Path,
    base: File,
    weights: Mapping[str, NDArray[np.float32]],
    *,
    masks: MaskSet | None = None,
    digests: bool = True,
    **record: Any,
) -> Path:
    """A skill file with these weights, bound to ``base``, in the dtypes ``base`` has."""
    specs = []
    for name, values in weights.items():
        kind = layout(base.tensors[name].dtype)
        payload = kind.encode(values)
        specs.append(TensorSpec(name, kind.id, values.shape, len(payload), [payload]))
    bound = {"id": "sql", "base_dir_hash": f"{dir_key(base):016x}", **record}
    header = {"arch": base.header.to_dict()["arch"], "quant_type": "F32", "skills": [bound]}
    section = None if masks is None else encode_masks(masks, base.arch)
    write_file(path, header, specs, masks=section, digests=digests)
    return path


def payloads(file: File, skill: str) -> dict[str, tuple[int, bytes]]:
    """Dtype and bytes of the tensors of a skill, by the name each replaces."""
    return {
        parts[1]: (entry.dtype, bytes(file[name].raw))
        for name, entry in file.tensors.items()
        if (parts := split_name(name)) is not None and parts[0] == skill
    }

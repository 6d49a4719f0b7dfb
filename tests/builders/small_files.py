"""The small files that are damaged: each with what its part of the format has, none over 60 KB, the same every time."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from builders.cmf import F16, Q4_TILED, Q8_ROW, U8, Cmf, T, header, pattern, two_layers
from builders.mask_sections import info, ones, section
from builders.operations import registered, tensor
from builders.reference import every_dtype
from cortiq.container import TensorSpec, grow, write_file
from cortiq.edit.shard import shard

MOE = {"num_experts": 4, "top_k": 2, "moe_intermediate_size": 32}
SKILL_BIT = 0b1000000
SET_NBYTES = 4000  # of a file of the set, four for each weight


def model() -> bytes:
    """G1: two layers with every kind of section, as the package writes it, digests included."""
    return _made(_write_model)


def dtypes() -> bytes:
    """G2: a tensor of every dtype."""
    return bytes(every_dtype().data)


def grown() -> bytes:
    """G3: G1 after two appends that each brought a skill."""

    def make(path: Path) -> None:
        _write_model(path)
        for name in ("sql", "gfx-html"):
            added = TensorSpec(f"skill.{name}.model.norm.weight", F16, (64,), 128, [pattern(128, len(name))])
            grow(path, add=[added, tensor(f"{name}.note", 300)], header=registered(name))

    return _made(make)


def skill() -> bytes:
    """G4: a standalone skill file."""
    record = {"id": "sql", "name": "SQL", "layers": [0], "base_dir_hash": "9f22593eb458bc6f", "base_arch": "llama"}
    tensors = [
        T("model.norm.weight", F16, (64,), pattern(128, 3)),
        T("model.layers.0.mlp.gate_proj.weight", Q4_TILED, (96, 64), pattern(96 * 2 * 18, 5)),
    ]
    return bytes(Cmf(header(skills=[record]), tensors, features=1 | SKILL_BIT).build().data)


def experts() -> bytes:
    """G7: a mixture of four experts, with masks that restrict experts."""
    bits = ones((2, 96), (2, 4), (1, 2), (2, 4))
    masks = [(info(name, i, has_expert_fields=True), bits) for i, name in enumerate(("general", "code"))]
    made = two_layers()
    fields = {**made.header, "arch": {**made.header["arch"], "moe": MOE}}
    router = T("model.layers.0.mlp.router.weight", F16, (4, 64), pattern(512, 8))
    tensors = [made.tensors[0], made.tensors[1], router]
    built = replace(made, header=fields, tensors=tensors, masks=section(*masks), index=b"", data=bytearray())
    return bytes(built.build().data)


def image() -> bytes:
    """G8: a pipeline from text to image, its parts by prefix."""
    config = b'{"in_channels": 4}'
    tensors = [
        T("te.model.norm.weight", F16, (64,), pattern(128, 3)),
        T("dit.blocks.0.attn.weight", Q8_ROW, (8, 64), pattern(8 * 64 + 16, 4)),
        T("vae.conv_in.weight", F16, (4, 4, 3, 3), pattern(288, 5)),
        T("vae.config_json", U8, (len(config),), config),
    ]
    return bytes(Cmf(header(provenance={"pipeline": "text-to-image"}), tensors).build().data)


def part() -> bytes:
    """The first file of G5, with the sections of the set."""
    with tempfile.TemporaryDirectory() as folder:
        return write_set(Path(folder))[0].read_bytes()


SMALL_FILES: dict[str, Callable[[], bytes]] = {
    "model": model,
    "dtypes": dtypes,
    "grown": grown,
    "skill": skill,
    "part": part,
    "experts": experts,
    "image": image,
}


@functools.cache
def small_file(name: str) -> bytes:
    """One of ``SMALL_FILES``, made once in a process."""
    return SMALL_FILES[name]()


def write_set(folder: Path) -> list[Path]:
    """G5: G1 as a set of files."""
    path = folder / "model.cmf"
    path.write_bytes(small_file("model"))
    return list(shard(path, None, SET_NBYTES).paths)


def _write_model(path: Path) -> None:
    """Without most rows of the matrices, so that every byte of the file can be tried."""
    made = two_layers()
    tensors = [_fewer_rows(t, 8) for t in made.tensors]
    specs = [TensorSpec(str(t.name), t.dtype, t.shape, len(t.payload), [t.payload]) for t in tensors]
    write_file(path, made.header, specs, masks=made.masks, vocab=made.vocab, index=made.index)


def _fewer_rows(tensor: T, rows: int) -> T:
    if len(tensor.shape) == 1:
        return tensor
    nbytes = len(tensor.payload) // tensor.shape[0] * rows
    return T(tensor.name, tensor.dtype, (rows, tensor.shape[1]), tensor.payload[:nbytes])


def _made(make: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.cmf"
        make(path)
        return path.read_bytes()

"""Sets of files, written by the package, and what is in them."""

from __future__ import annotations

from pathlib import Path

from builders.cmf import header, two_layers
from builders.operations import tensor
from cortiq.container import open as open_model
from cortiq.container import write_file
from cortiq.container.shard_writer import WrittenSet
from cortiq.edit.shard import shard

MAX_BYTES = 28_000


def single(path: Path, *, note: str = "", digests: bool = True) -> Path:
    """A file in the writer's layout with every kind of section, a skill and seven tensors; ``note`` changes it."""
    base = two_layers()
    names = ["w.a", "w.b", "w.c", "skill.s.w.a", "w.d", "skill.s.w.d", "w.e"]
    skills = [{"id": "s", "layers": [0]}]
    fields = header(tokenizer_config=base.header["tokenizer_config"], skills=skills, provenance={"note": note})
    specs = [tensor(name, 4000 if "w.a" in name else 3000, i) for i, name in enumerate(names)]
    sections = {"masks": base.masks, "vocab": base.vocab, "index": base.index}
    write_file(path, fields, specs, digests=digests, **sections)
    return path


def written_set(folder: Path, *, note: str = "") -> WrittenSet:
    """``single`` as a set of four files, beside it."""
    return shard(single(folder / "m.cmf", note=note), None, MAX_BYTES)


def whole(path: Path) -> tuple[bytes, ...]:
    """Everything a reader of a model sees: tensors in order, sections, header fields but what says where they lie."""
    with open_model(path) as file:
        fields = file.header.to_dict()
        kept = {name: value for name, value in fields.items() if name not in ("shard", "digests")}
        names = [name for name in file if not name.startswith("cmf.digests")]
        sections = [bytes(file.section(name) or b"") for name in ("masks", "vocab", "index")]
        return (repr(kept).encode(), repr(names).encode(), *sections, *(bytes(file[name].raw) for name in names))

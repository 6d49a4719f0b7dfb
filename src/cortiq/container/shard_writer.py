"""Writing a set: a model in several files, each of them valid alone (SPEC 10).

Tensors are dealt out in their order. File 1 has the tokenizer, the masks, the sparse index and the registry of skills.
All files appear together: under temporary names until each is complete and on disk, file 1 last, so that nobody finds
half of a set under a new file 1.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

from cortiq.container.digest import is_digest_tensor
from cortiq.container.hash64 import Buffer
from cortiq.container.hashing import hash64
from cortiq.container.header import MAX_SHARDS, SET_DIGITS, Header, parse_header
from cortiq.container.output import AtomicFile, commit_set
from cortiq.container.shard_names import files_of_sets, shard_base, shard_name
from cortiq.container.strict_json import dump_json
from cortiq.container.writer import (
    FilePlan,
    TensorSpec,
    check_tensors,
    naming,
    plan_file,
    stated_header,
    write_body,
    write_head,
)
from cortiq.errors import UsageError

_F32_NBYTES = 4


@dataclass(frozen=True, slots=True)
class WrittenSet:
    """``paths`` of the files in order, and what they share as ``shard.set``."""

    paths: tuple[Path, ...]
    set: str

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.paths)


def write_shards(
    output: str | os.PathLike[str],
    header: Mapping[str, Any],
    tensors: Iterable[TensorSpec],
    max_bytes: int,
    *,
    digests: bool = True,
    **sections: Buffer | None,
) -> WrittenSet:
    """Write ``{output without .cmf}-{no:05}-of-{count:05}.cmf``, of ``max_bytes`` each as ``deal_out`` counts.

    ``header``, ``digests`` and ``sections`` are those of ``write_file``; a ``Header`` counts as its fields. Every file
    states ``shard.set``, made of all headers and directories, which hold the hashes of everything: equal input gives
    equal bytes, another model, or another split, another set. File 1 states ``shard.dirs``, hash64 of each directory.

    Raises as ``write_file``, and UsageError (``shard_size``, ``shard_count``, ``skill_file``). What was there before is
    as it was then, unless the system fails while the files get their names: then file 1 is the old one or none.
    """
    fields = dict(header.to_dict() if isinstance(header, Header) else header)
    specs = [spec for spec in tensors if not is_digest_tensor(spec.name)]
    check_tensors(specs)
    counts = deal_out([spec.shape for spec in specs], max_bytes)
    groups = [specs[end - count : end] for count, end in zip(counts, accumulate(counts), strict=True)]
    folder, base = Path(output).parent, shard_base(Path(output))
    paths = tuple(folder / shard_name(base, no, len(groups)) for no in range(1, len(groups) + 1))
    with naming(output):
        plans = [
            plan_file(path, _fields(fields, no, len(groups)), group, sections if no == 1 else {}, digests=digests)
            for no, (path, group) in enumerate(zip(paths, groups, strict=True), 1)
        ]
        if plans[0].header.is_skill_file:
            raise UsageError("a skill file is not a model to be sharded", code="skill_file")
        with ExitStack() as stack:
            return WrittenSet(paths, _write(plans, [stack.enter_context(AtomicFile(path)) for path in paths]))


def deal_out(shapes: Iterable[tuple[int, ...]], max_bytes: int) -> list[int]:
    """How many of the tensors of these shapes, in their order, each file gets: it ends where ``max_bytes`` would be
    passed.

    Four bytes count for each weight, whatever its dtype (SPEC 10). A tensor that is larger has a file of its own. There
    is always one file. Raises UsageError.shard_size and UsageError.shard_count.
    """
    if max_bytes < 1:
        raise UsageError("the size of a shard must be positive", code="shard_size", found=max_bytes)
    counts, size = [0], 0
    for shape in shapes:
        nbytes = _F32_NBYTES * prod(shape)
        if counts[-1] and size + nbytes > max_bytes:
            counts.append(0)
            size = 0
        counts[-1] += 1
        size += nbytes
    if len(counts) > MAX_SHARDS:
        raise UsageError("too many files", code="shard_count", expected=f"at most {MAX_SHARDS}", found=len(counts))
    return counts


def check_set_output(output: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Raise UsageError.exists when there are files of sets by the name of ``output``, of whatever count.

    With ``force`` only when one of them is an input. Files of another count have other names and stay.
    """
    existing = list(files_of_sets(output.parent, shard_base(output)))
    read = [path for path in inputs if path.exists()]
    for path in existing:
        if any(path.samefile(other) for other in read):
            raise UsageError("source and output are the same", code="exists", path=str(path))
    if existing and not force:
        raise UsageError("there is a set of files by that name already", code="exists", path=str(existing[0]))


def sets_beside(paths: Sequence[Path]) -> list[Path]:
    """Files of other sets that begin with the name of the set ``paths``, in its folder."""
    return [path for path in files_of_sets(paths[0].parent, shard_base(paths[0])) if path not in set(paths)]


def _fields(fields: Mapping[str, Any], no: int, count: int) -> dict[str, Any]:
    """The header of one file, with room for what is known when all are written."""
    made = {name: value for name, value in fields.items() if name != "shard"}
    if no > 1:
        made["tokenizer_config"] = None
        if "skills" in made:
            made["skills"] = []
    identity: dict[str, Any] = {"no": no, "count": count, "set": "0" * SET_DIGITS}
    return {**made, "shard": identity | ({"dirs": [_digits(0)] * count} if no == 1 else {})}


def _write(plans: Sequence[FilePlan], outputs: Sequence[AtomicFile]) -> str:
    """Bodies first, for the headers name what all of them hold. Gives ``shard.set``."""
    directories = [write_body(plan, output) for plan, output in zip(plans, outputs, strict=True)]
    headers = [stated_header(plan, directory) for plan, directory in zip(plans, directories, strict=True)]
    name = _set_name(headers, directories)
    dirs = [_digits(hash64(directory)) for directory in directories]
    for plan, header, directory, output in zip(plans, headers, directories, outputs, strict=True):
        fields = header.to_dict()
        fields["shard"] |= {"set": name} | ({"dirs": dirs} if "dirs" in fields["shard"] else {})
        write_head(plan, parse_header(dump_json(fields)), directory, output)
    commit_set(outputs)
    return name


def _set_name(headers: Iterable[Header], directories: Iterable[bytes]) -> str:
    """The first 128 bits of SHA-256 over every header, before it states the set, and every directory, each with its
    length. They hold hashes of every tensor and section.
    """
    state = hashlib.sha256()
    for header, directory in zip(headers, directories, strict=True):
        for data in (header.raw, directory):
            state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:SET_DIGITS]


def _digits(value: int) -> str:
    return f"{value:016x}"

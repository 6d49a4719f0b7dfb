"""One file as a set of files, and a set as one file (SPEC 10). Tensors are carried over as they are."""

from __future__ import annotations

from pathlib import Path

from cortiq.container.file import File
from cortiq.container.header import HASHED_SECTIONS
from cortiq.container.opening import open as open_model
from cortiq.container.shard_names import shard_base
from cortiq.container.shard_writer import WrittenSet, check_set_output, write_shards
from cortiq.container.writer import write_file
from cortiq.edit.carried import Progress, carried
from cortiq.errors import UsageError


def shard(
    source: Path, output: Path | None, max_bytes: int, *, force: bool = False, progress: Progress | None = None
) -> WrittenSet:
    """Write the model at ``source`` as files of about ``max_bytes``, counted as ``deal_out`` does.

    ``output`` without ``.cmf`` is what their names begin with, by default that of ``source``. A set can be dealt out
    anew. ``merge`` gives back the bytes of a file that ``write_file`` wrote with digests.

    Raises what ``cortiq.open``, ``write_shards`` and ``check_set_output`` raise.
    """
    with open_model(source) as file:
        target = source if output is None else output
        check_set_output(target, _paths(file), force=force)
        masks, vocab, index = _sections(file)
        specs = carried(file, progress)
        return write_shards(target, file.header, specs, max_bytes, masks=masks, vocab=vocab, index=index)


def merge(first: Path, output: Path | None = None, *, force: bool = False, progress: Progress | None = None) -> Path:
    """Write the set that ``first`` is of as one file; its path.

    The default of ``output`` is the name of the set with ``.cmf``. Header, sections and the order of the tensors are
    kept, ``shard`` is dropped, hashes and digests are made anew.

    Raises what ``cortiq.open`` and ``write_file`` raise, UsageError.no_set for a file that is of no set,
    UsageError.exists.
    """
    with open_model(first) as file:
        if file.header.shard is None:
            raise UsageError("the file is of no set", code="no_set", path=str(first))
        target = output or file.local_path.with_name(f"{shard_base(file.local_path)}.cmf")
        if any(target.exists() and target.samefile(path) for path in _paths(file)):
            raise UsageError("source and output are the same", code="exists", path=str(target))
        if target.exists() and not force:
            raise UsageError("the output exists already", code="exists", path=str(target))
        fields = file.header.to_dict()
        del fields["shard"]
        masks, vocab, index = _sections(file)
        specs = carried(file, progress)
        write_file(target, fields, specs, masks=masks, vocab=vocab, index=index)
    return target


def _paths(file: File) -> list[Path]:
    return [part.local_path for part in file.parts or (file,)]


def _sections(file: File) -> tuple[memoryview | None, ...]:
    return tuple(file.section(name) for name in HASHED_SECTIONS)

"""Tensors of an open file as they are, to be written into another one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from cortiq.container.digest import FIELD, covered
from cortiq.container.file import File
from cortiq.container.tensor import TensorEntry
from cortiq.container.writer import TensorSpec

Progress = Callable[[int, int], None]
_CHUNK = 1 << 23


def carried(file: File, progress: Progress | None = None, without: Collection[str] = ()) -> list[TensorSpec]:
    """Every tensor of ``file`` but those named, checked against its hash on the way and dropped from memory behind it.

    The tensor of digests is left out where the header names it: the writer makes it anew. ``progress`` is called with
    the bytes done and all bytes.
    """
    names = covered(file) if FIELD in file.header else list(file)
    entries = [file.tensors[name] for name in names if name not in without]
    total, done = sum(entry.nbytes for entry in entries), 0

    def chunks(entry: TensorEntry) -> Iterator[memoryview]:
        nonlocal done
        payload = file[entry.name].raw
        for at in range(0, len(payload), _CHUNK):
            chunk = payload[at : at + _CHUNK]
            yield chunk
            file.release(entry, at, len(chunk))
            done += len(chunk)
            if progress is not None:
                progress(done, total)

    return [
        TensorSpec(entry.name, entry.dtype, entry.shape, entry.nbytes, chunks(entry), entry.hash) for entry in entries
    ]

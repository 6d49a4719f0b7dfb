"""A CMF file that stays where it is: its bytes come by HTTP range request when they are viewed.

Opening asks for the first 128 KiB, which hold envelope, header and directory of a model of a thousand tensors, and for
what lies beyond them where the file is larger or has grown.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import NamedTuple

from cortiq.container.file import File
from cortiq.container.hashing import hash64
from cortiq.container.header import HASHED_SECTIONS
from cortiq.container.location import locate
from cortiq.container.metadata import Metadata, read_metadata
from cortiq.container.ranges import Patience, RangeReader
from cortiq.errors import Bounds, Changed, CortiqError, FormatError, HashMismatch, UsageError
from cortiq.settings import Settings

HEAD = 1 << 17
KEPT = 1 << 26
REPEATS = 2


def open_remote(name: str, patience: Patience | None = None) -> File:
    """Open the file at a URL (``cortiq.container.location``), with the checks of a local one.

    Raises what those raise, and what ``locate`` and ``RangeReader`` raise.
    """
    reader = RangeReader(locate(name), patience or Patience(timeout=Settings.load().timeout))
    shown = reader.location.shown
    try:
        mapping = RemoteMapping(reader)
        metadata = _read_metadata(mapping)
    except CortiqError as error:
        error.path = error.path or shown
        raise
    mapping.expect(metadata)
    envelope, header, directory, mask_meta = metadata
    return File(shown, envelope, header, directory, mapping, mask_meta)


def _read_metadata(mapping: RemoteMapping) -> Metadata:
    """The metadata; fetched again when it is not valid, unless the same bytes arrive, because a transfer can damage."""
    before = None
    for _ in range(REPEATS):
        try:
            return read_metadata(mapping)
        except Changed:
            raise
        except (FormatError, HashMismatch):
            fetched = mapping.forget()
            if fetched == before:
                raise
            before = fetched
    return read_metadata(mapping)


class _Block(bytearray):
    """Bytes that arrived; unlike bytes, they can be found again as long as somebody views them."""


class _Known(NamedTuple):
    """What a range has to hash to, and whose it is."""

    hash: int
    section: str
    tensor: str | None


class RemoteMapping:
    """The bytes of a remote file, with the surface of ``cortiq.container.mapping.Mapping``.

    A view of a tensor or section is fetched as a whole, compared with its hash64 and fetched again, ``REPEATS`` times,
    when it differs; other ranges come as they are sent. Digests are not compared: ``verify`` does that, on a file that
    is here. What is viewed stays in memory as long as there is a view of it; beyond that the last ``KEPT`` bytes do,
    and what opening read.
    """

    def __init__(self, reader: RangeReader) -> None:
        """Fetches the first 128 KiB. Raises what ``RangeReader`` raises."""
        self.reader = reader
        self._windows = [(0, reader.begin(HEAD))]
        self.size = reader.size
        self._known: dict[tuple[int, int], _Known] = {}
        self._viewed: weakref.WeakValueDictionary[tuple[int, int], _Block] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[tuple[int, int], _Block] = OrderedDict()
        self._kept_nbytes = 0
        self._lock = threading.Lock()
        self._open = True

    @property
    def address(self) -> int:
        raise UsageError("a remote file has no address in memory; download it first", code="remote", path=self._shown)

    @property
    def closed(self) -> bool:
        return not self._open

    def read(self, offset: int, nbytes: int) -> bytes:
        """Bytes of the metadata, fetched together with what follows them; fewer at the end of the file."""
        nbytes = max(0, min(nbytes, self.size - offset))
        found = self._in_window(offset, nbytes)
        if found is None:
            window = bytearray()
            self.reader.read_into(window, offset, min(max(nbytes, HEAD), self.size - offset))
            self._windows.append((offset, bytes(window)))
            found = bytes(window[:nbytes])
        return found

    def forget(self) -> list[tuple[int, bytes]]:
        """Drop what ``read`` has fetched, to fetch it again; gives it."""
        windows, self._windows = self._windows, []
        return windows

    def expect(self, metadata: Metadata) -> None:
        """Compare every section and tensor that arrives from now on with the hash that ``metadata`` states."""
        envelope = metadata.envelope
        for name in HASHED_SECTIONS:
            part, stored = envelope.section(name), metadata.header.section_hashes.get(name, 0)
            if part.nbytes and stored:
                self._known[part.offset, part.nbytes] = _Known(stored, name, None)
        table = metadata.directory.table
        columns = [table.column(name).tolist() for name in ("off", "nbytes", "hash")]
        for tensor, off, nbytes, stored in zip(table.names, *columns, strict=True):
            self._known[envelope.data.offset + off, nbytes] = _Known(stored, "data", tensor)

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Read-only view of a range inside the file, fetched unless it is here.

        Raises UsageError.closed, Bounds.map, HashMismatch with the section's name or ``tensor`` as code, and what
        ``RangeReader`` raises.
        """
        self._check_open()
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size:
            raise Bounds("outside the remote file", code="map", expected=f"within {self.size} bytes", found=offset)
        key = (offset, nbytes)
        with self._lock:
            block = self._viewed.get(key)
        if block is None:
            block = self._fetch(key)
        self._keep(key, block)
        return memoryview(block).toreadonly()

    def release(self, offset: int, nbytes: int) -> None:
        """Keep nothing that lies inside a range, unless somebody views it."""
        with self._lock:
            for start, length in list(self._kept):
                if offset <= start and start + length <= offset + nbytes:
                    del self._kept[start, length]
                    self._kept_nbytes -= length

    def check_unchanged(self) -> None:
        """Ask the server. Raises Changed.file when the file is no longer the one that was opened."""
        self._check_open()
        self.reader.check_unchanged()

    def check_usable(self) -> None:
        """Raises UsageError.closed. Every answer is compared with the first one, so there is nothing to ask for."""
        self._check_open()

    def close(self) -> None:
        """Forget everything. Closing twice is allowed; views taken before stay valid."""
        self._open = False
        with self._lock:
            self._windows.clear()
            self._kept.clear()
            self._kept_nbytes = 0

    @property
    def _shown(self) -> str:
        return self.reader.location.shown

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError("the file is closed", code="closed")

    def _keep(self, key: tuple[int, int], block: _Block) -> None:
        with self._lock:
            self._viewed[key] = block
            if key not in self._kept:
                self._kept_nbytes += key[1]
            self._kept[key] = block
            self._kept.move_to_end(key)
            while self._kept_nbytes > KEPT:
                (_, nbytes), _ = self._kept.popitem(last=False)
                self._kept_nbytes -= nbytes

    def _in_window(self, offset: int, nbytes: int) -> bytes | None:
        for start, window in self._windows:
            if start <= offset and offset + nbytes <= start + len(window):
                return window[offset - start : offset - start + nbytes]
        return None

    def _fetch(self, key: tuple[int, int]) -> _Block:
        """The bytes of a range, right as far as that is known."""
        block = _Block(self._in_window(*key) or b"")
        if len(block) != key[1]:
            self.reader.read_into(block, *key)
        known = self._known.get(key)
        if known is None:
            return block
        for _ in range(REPEATS):
            if hash64(block) == known.hash:
                return block
            block = _Block()
            self.reader.read_into(block, *key)
        if (found := hash64(block)) == known.hash:
            return block
        raise HashMismatch(
            f"damaged: the bytes do not match their hash; fetched {1 + REPEATS} times",
            code=known.section if known.tensor is None else "tensor",
            path=self._shown,
            section=known.section,
            tensor=known.tensor,
            offset=key[0],
            expected=f"{known.hash:016x}",
            found=f"{found:016x}",
        )

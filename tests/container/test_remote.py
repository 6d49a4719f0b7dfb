"""Files at a URL, against real servers on this machine: what is asked for, what is checked, what heals."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import cortiq
from builders.cmf import F32, U8, Cmf, T, header, pattern, two_layers
from builders.operations import base, state
from builders.range_server import RangeServer, cut, flip, proper, status
from builders.sparse import COUNT, NBYTES, sparse_model
from cortiq.container import File, TensorSpec, open_single, verify, write_file
from cortiq.container.ranges import Patience
from cortiq.container.remote import HEAD, KEPT, open_remote
from cortiq.edit.diff import diff
from cortiq.edit.story import story
from cortiq.errors import (
    CortiqError,
    HashMismatch,
    InvalidMagic,
    NetworkError,
    UnsupportedFeature,
    UsageError,
)

FAST = Patience(timeout=5.0, tries=3, pause=0.01)
LARGE = HEAD  # bytes of each tensor of ``spread``, so that none lies in the first answer

pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture
def spread(tmp_path: Path) -> Path:
    """A file whose tensors and tokenizer lie beyond what opening asks for."""
    tensors = [T(f"w.{i}", U8, (LARGE,), pattern(LARGE, 1 + i)) for i in range(4)]
    return Cmf(header(), tensors, vocab=two_layers().vocab).build().save(tmp_path / "spread.cmf")


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    return sparse_model(tmp_path / "sparse.cmf")


@pytest.fixture
def server(spread: Path) -> Iterator[RangeServer]:
    with RangeServer(spread) as running:
        yield running


def fetched(server: RangeServer) -> list[tuple[int, int]]:
    """First and last byte of every range that was asked for."""
    pairs = (text.removeprefix("bytes=").partition("-") for text in server.ranges())
    return [(int(first), int(last)) for first, _, last in pairs]


@pytest.mark.parametrize("make", [lambda path: two_layers().save(path), base], ids=["written", "grown"])
def test_the_same_file_as_from_disk(make, tmp_path: Path) -> None:
    path = make(tmp_path / "model.cmf")
    with RangeServer(path) as server, open_single(server.url) as remote, open_single(path) as local:
        assert isinstance(remote, File)
        assert state(remote) == state(local)
        assert remote.path == server.url
        assert server.url in repr(remote)


def test_opening_600_mb_reads_its_metadata_alone(sparse: Path) -> None:
    with RangeServer(sparse) as server, cortiq.open(server.url) as file:
        assert (file.size, len(file)) == (sparse.stat().st_size, COUNT)
        assert verify(file, level="quick").ok
        assert story(file)
        masks = file.envelope.masks.offset
        assert fetched(server) == [(0, HEAD - 1), (masks, masks + HEAD - 1)]
        assert server.sent == 2 * HEAD
        assert len(file["model.layers.1.mlp.part.299.weight"].raw) == NBYTES
        assert (len(server.asked), server.sent) == (3, 2 * HEAD + NBYTES)


def test_metadata_at_the_end_is_one_more_request(tmp_path: Path) -> None:
    path = tmp_path / "grown.cmf"
    write_file(path, header(), [TensorSpec("w", U8, (4 * HEAD,), 4 * HEAD, [pattern(4 * HEAD)])])
    cortiq.container.grow(path, header=lambda fields: {**fields, "provenance": {"tool": "x"}})
    with RangeServer(path) as server, open_single(server.url) as file:
        assert file.envelope.header.offset > HEAD
        assert file.header["provenance"] == {"tool": "x"}
        assert len(server.asked) == 2


def test_sections_at_the_end_are_one_more_request(tmp_path: Path) -> None:
    made = two_layers()
    tensors = [*made.tensors, T("w", U8, (4 * HEAD,), pattern(4 * HEAD))]
    path = Cmf(made.header, tensors, made.masks, made.vocab, made.index, 0b11).build().save(tmp_path / "model.cmf")
    with RangeServer(path) as server, open_single(server.url) as file:
        assert list(file.masks) == ["general", "code"]
        assert len(file.sparse_index) == 1
        assert file.tokenizer_json == made.vocab
        assert len(server.asked) == 2


def test_a_directory_larger_than_the_head(tmp_path: Path) -> None:
    path = Cmf(header(), [T(f"tensor.{i:05}", U8, (1,), b"x") for i in range(4000)]).build().save(tmp_path / "many.cmf")
    with RangeServer(path) as server, open_single(server.url) as file:
        assert len(file) == 4000
        assert len(server.asked) == 2


def test_a_tensor_is_one_range(server: RangeServer) -> None:
    with open_single(server.url) as file:
        raw = file["w.2"].raw
        assert bytes(raw) == pattern(LARGE, 3)
        assert raw.readonly
        start = file.envelope.data.offset + file.tensors["w.2"].off
        assert fetched(server)[1:] == [(start, start + LARGE - 1)]
        np.testing.assert_array_equal(file["w.2"].numpy(), np.frombuffer(pattern(LARGE, 3), np.uint8))
        assert len(server.asked) == 2


def test_several_threads(server: RangeServer) -> None:
    with open_single(server.url) as file, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: bytes(file[f"w.{i % 4}"].raw), range(32)))
    assert found == [pattern(LARGE, 1 + i % 4) for i in range(32)]


def test_damage_on_the_way_heals(spread: Path) -> None:
    with RangeServer(spread, [proper, flip(70), flip(0)]) as server, open_single(server.url) as file:
        assert bytes(file["w.0"].raw) == pattern(LARGE, 1)
        assert len(server.asked) == 4


def test_damage_that_stays_is_named(spread: Path) -> None:
    with RangeServer(spread, [proper], always=flip(40)) as server, open_single(server.url) as file:
        with pytest.raises(HashMismatch) as caught:
            file["w.1"].numpy()
        assert (caught.value.kind, caught.value.tensor, caught.value.path) == ("HashMismatch.tensor", "w.1", server.url)
        assert caught.value.offset == file.envelope.data.offset + file.tensors["w.1"].off
        assert caught.value.expected == f"{file.tensors['w.1'].hash:016x}"
        assert len(server.asked) == 4
        with pytest.raises(HashMismatch, match="vocab"):
            _ = file.tokenizer_json
        assert len(server.asked) == 7


def test_a_damaged_head_heals(spread: Path) -> None:
    for place in (0, 20, 130, 400):
        with RangeServer(spread, [flip(place)]) as server, open_single(server.url) as file:
            assert len(file) == 4
            assert len(server.asked) == 2


def test_a_small_file_is_checked_too(tmp_path: Path) -> None:
    """All of it is in the first answer, where a damaged tensor is seen when it is used."""
    path = two_layers().save(tmp_path / "model.cmf")
    with RangeServer(path, [flip(5000)]) as server, open_single(server.url) as file:
        assert bytes(file["model.embed_tokens.weight"].raw) == two_layers().tensors[0].payload
        assert len(server.asked) == 2


@pytest.mark.parametrize("size", [0, 3, 100])
def test_a_file_that_is_too_short(size: int, tmp_path: Path) -> None:
    path = tmp_path / "short.cmf"
    path.write_bytes(two_layers().data[:size])
    with RangeServer(path) as server, pytest.raises(CortiqError) as caught:
        open_single(server.url)
    assert (caught.value.kind, caught.value.path) == ("Bounds.envelope_short", server.url)


def test_a_web_page(tmp_path: Path) -> None:
    path = tmp_path / "page.cmf"
    path.write_bytes(b"<!DOCTYPE html>" + bytes(1000))
    with RangeServer(path) as server, pytest.raises(InvalidMagic, match="HTML page"):
        open_single(server.url)


def test_one_file_of_a_set(tmp_path: Path) -> None:
    path = (
        Cmf(header(shard={"no": 1, "count": 2}), two_layers().tensors).build().save(tmp_path / "m-00001-of-00002.cmf")
    )
    with RangeServer(path) as server:
        with open_single(server.url) as file:
            assert file.header.shard is not None
        with pytest.raises(UnsupportedFeature, match="set of 2"):
            cortiq.open(server.url)


def test_what_is_viewed_is_fetched_once_and_then_let_go(server: RangeServer) -> None:
    with open_single(server.url) as file:
        part = file.envelope.data
        first = file.mapping.view(part.offset, LARGE)
        file.mapping.release(0, file.size)
        again = file.mapping.view(part.offset, LARGE)
        assert first.obj is again.obj
        assert len(server.asked) == 2
        kept = weakref.ref(first.obj)
        file.mapping.release(part.offset, LARGE)
        del first, again
        gc.collect()
        assert kept() is None
        file.mapping.view(part.offset, LARGE)
        assert len(server.asked) == 3


def test_memory_is_bounded(sparse: Path) -> None:
    with RangeServer(sparse) as server, open_single(server.url) as file:
        names = list(file)[: KEPT // NBYTES + 8]
        for name in names:
            _ = file[name]
        mapping = file.mapping
        assert sum(len(block) for block in mapping._kept.values()) == mapping._kept_nbytes <= KEPT
        asked = len(server.asked)
        _ = file[names[-1]]
        assert len(server.asked) == asked
        _ = file[names[0]]
        assert len(server.asked) == asked + 1


def test_closed(server: RangeServer) -> None:
    file = open_single(server.url)
    view = file.mapping.view(0, 4)
    file.close()
    file.close()
    assert (file.closed, bytes(view)) == (True, b"CMF\x01")
    for use in (lambda: file["w.0"], file.mapping.check_unchanged, file.mapping.check_usable):
        with pytest.raises(UsageError, match="closed"):
            use()


def test_outside(server: RangeServer) -> None:
    with open_single(server.url) as file:
        for offset, nbytes in ((file.size, 1), (-1, 1), (0, -1)):
            with pytest.raises(CortiqError, match=r"Bounds\.map"):
                file.mapping.view(offset, nbytes)


def test_changed_between_tensors(server: RangeServer) -> None:
    with open_single(server.url) as file:
        _ = file["w.0"]
        file.mapping.check_unchanged()
        server.etag = '"second"'
        for use in (lambda: file["w.1"], file.mapping.check_unchanged):
            with pytest.raises(CortiqError, match="replaced") as caught:
                use()
            assert (caught.value.kind, caught.value.path) == ("Changed.file", server.url)
        assert bytes(file["w.0"].raw) == pattern(LARGE, 1)


def test_a_broken_transfer_goes_on_where_it_broke(spread: Path) -> None:
    faults = [cut(1000), proper, cut(70_000), cut(10)]
    with RangeServer(spread, faults) as server, open_remote(server.url, FAST) as file:
        assert bytes(file["w.0"].raw) == pattern(LARGE, 1)
        start = file.envelope.data.offset
        firsts = [first for first, _ in fetched(server)]
        assert firsts == [0, 1000, start, start + 70_000, start + 70_010]


def test_settings_say_how_long_to_wait(spread: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORTIQ_TIMEOUT", "soon")
    with RangeServer(spread) as server, pytest.raises(UsageError, match="CORTIQ_TIMEOUT"):
        open_single(server.url)
    monkeypatch.setenv("CORTIQ_TIMEOUT", "7")
    with RangeServer(spread) as server, open_single(server.url) as file:
        assert file.mapping.reader._patience.timeout == 7


def test_what_needs_memory_refuses(server: RangeServer, tmp_path: Path) -> None:
    from cortiq.container.signature import check_signature

    with pytest.raises(UsageError) as caught:
        cortiq.load(server.url)
    assert (caught.value.kind, caught.value.path) == ("UsageError.remote", server.url)
    assert not server.asked
    with open_single(server.url) as file:
        for use in (
            lambda: cortiq.load(file),
            lambda: verify(file),
            lambda: check_signature(file),
            lambda: file.address(file.tensors["w.0"]),
            lambda: file.map_end(file.tensors["w.0"]),
        ):
            with pytest.raises(UsageError, match="download it first"):
                use()


def test_diff_reads_the_digests(tmp_path: Path) -> None:
    def write(name: str, scale: float) -> Path:
        values = (np.arange(LARGE, dtype=np.float32) * scale).tobytes()
        kept = TensorSpec("same", U8, (4,), 4, [b"same"])
        tensors = [TensorSpec("w", F32, (LARGE,), len(values), [values]), kept]
        write_file(tmp_path / name, header(), tensors, vocab=pattern(LARGE))
        return tmp_path / name

    a, b = write("a.cmf", 1.0), write("b.cmf", 1.5)
    with RangeServer(b) as server, open_single(server.url) as remote, open_single(a) as local:
        found = diff(local, remote, values=False)
        assert ([change.after.name for change in found.changed], found.same, found.sections) == (["w"], 1, ())
        assert server.sent <= HEAD + 64
        (change,) = diff(local, remote).changed
        assert change.relative == 0.5


def test_errors_hide_what_may_be_secret(server: RangeServer) -> None:
    server.always = status(404)
    secret = server.url.replace("http://", "http://me:word@") + "?token=word"
    with pytest.raises(NetworkError) as caught:
        open_single(secret)
    assert "word" not in str(caught.value)
    assert caught.value.path == server.url
    assert server.asked[0].path.endswith("?token=word")
    assert server.asked[0].headers["authorization"].startswith("Basic ")


def test_a_local_file_loads_nothing_of_http(tmp_path: Path) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    code = f"import cortiq, sys; cortiq.open({str(path)!r}).close(); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not loaded & {"huggingface_hub", "httpx", "httpx2", "ssl", "http.client", "socket", "email.utils"}
    assert not loaded & {"cortiq.container.remote", "cortiq.container.ranges"}

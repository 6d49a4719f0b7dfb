"""An interrupted conversion goes on to the bytes of an undisturbed one, and never with anything that is not its own."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import cortiq
from builders.gguf_files import write_gguf
from builders.interrupted import Interrupted
from builders.tiny import DATA
from cortiq.container import verify
from cortiq.container.disk import Disk
from cortiq.container.journal import Journal
from cortiq.container.partial import PartialFile, partial_path
from cortiq.convert import ConvertOptions, convert, parse_overrides
from cortiq.edit import requant
from cortiq.errors import Busy, NonFinite, UsageError

OPTIONS = ConvertOptions(quant="q4_tiled", resume=True)
CHECKPOINT = DATA / "llama"
ENVELOPE = 128


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cortiq.convert.encode.BLOCK_WEIGHTS", 2000)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "model.cmf"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of ``OPTIONS``, made in one go."""
    path = tmp_path_factory.mktemp("expected") / "model.cmf"
    convert(CHECKPOINT, path, replace(OPTIONS, resume=False))
    return path.read_bytes()


def go_on(output: Path, expected: bytes, options: ConvertOptions = OPTIONS, source: Path = CHECKPOINT) -> int:
    """Go on to the expected bytes, with nothing left beside them. How many tensors were taken over."""
    receipt = convert(source, output, options)
    assert output.read_bytes() == expected
    assert os.listdir(output.parent) == [output.name]
    notes = [note for note in receipt.warnings if "interrupted" in note]
    return int(notes[0].split()[0]) if notes else 0


def interrupt(output: Path, tensor: int = 8, source: Path = CHECKPOINT) -> tuple[Path, Path]:
    """What is left of a conversion that was interrupted at a tensor: the partial file and its journal."""
    assert Interrupted(tensor, 1).run(lambda: convert(source, output, OPTIONS))
    partial = partial_path(output)
    return partial, partial.with_name(partial.name + ".journal")


@pytest.mark.parametrize(
    ("quant", "digests", "threads", "step"), [("q4_tiled", True, 1, 1), ("vbit_ro", False, 2, 7), ("q8_2f", True, 3, 7)]
)
def test_interrupted_at_tensors(quant: str, digests: bool, threads: int, step: int, output: Path) -> None:
    options = ConvertOptions(quant=quant, digests=digests, threads=threads)
    tensors = convert(CHECKPOINT, output, options).tensors
    expected = output.read_bytes()
    output.unlink()
    options = replace(options, resume=True)
    for number in range(0, tensors, step):
        for chunk in (0, 1) if number % 7 == 0 else (0,):
            stopper = Interrupted(number, chunk)
            if not stopper.run(lambda: convert(CHECKPOINT, output, options)):
                assert chunk == 1  # a tensor of one chunk
                assert output.read_bytes() == expected
                output.unlink()
                continue
            partial = partial_path(output)
            assert partial.exists() == (number > 0)
            if number:
                assert partial.read_bytes()[:ENVELOPE] == bytes(ENVELOPE)
            counter = Interrupted(-1)
            counter.run(lambda: convert(CHECKPOINT, output, options))
            assert counter.asked + 1 == tensors - number
            assert output.read_bytes() == expected
            assert os.listdir(output.parent) == [output.name]
            output.unlink()


def test_as_many_attempts_as_tensors(output: Path, expected: bytes) -> None:
    attempts = 0
    while Interrupted(1, 0).run(lambda: convert(CHECKPOINT, output, OPTIONS)):
        attempts += 1
    assert attempts > 10
    assert output.read_bytes() == expected
    assert os.listdir(output.parent) == [output.name]
    with cortiq.open(output) as file:
        assert verify(file, require_hashes=True).ok


def test_progress_counts_what_is_there(output: Path) -> None:
    interrupt(output)
    seen: list[tuple[int, int]] = []
    convert(CHECKPOINT, output, OPTIONS, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


def copied(folder: Path) -> Path:
    """The checkpoint, to be changed."""
    return Path(shutil.copytree(CHECKPOINT, folder / "llama"))


def touch(source: Path) -> None:
    os.utime(source / "model.safetensors", ns=(1, 1))


def other_weights(source: Path) -> None:
    path = source / "model.safetensors"
    facts, tensors = path.stat(), load_file(path)
    tensors["model.renamed"] = tensors.pop("model.norm.weight")
    save_file(tensors | {"model.norm.weight": tensors.pop("model.renamed")}, path, {"made": "again"})
    os.utime(path, ns=(facts.st_mtime_ns, facts.st_mtime_ns))


def other_config(source: Path) -> None:
    path = source / "config.json"
    path.write_text(path.read_text().replace('"max_position_embeddings": ', '"max_position_embeddings": 1'))


def other_tokenizer(source: Path) -> None:
    path = source / "tokenizer.json"
    path.write_text(path.read_text() + "\n")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (touch, "source file model.safetensors"),
        (other_weights, "source file model.safetensors"),
        (other_config, "header"),
        (other_tokenizer, "section vocab"),
    ],
)
def test_a_changed_source_is_named(change: Callable[[Path], None], name: str, output: Path, tmp_path: Path) -> None:
    source = copied(tmp_path)
    left = interrupt(output, source=source)
    before = [path.read_bytes() for path in left]
    change(source)
    with pytest.raises(UsageError, match=f"had another {name}: .* without --resume") as caught:
        convert(source, output, OPTIONS)
    assert (caught.value.code, caught.value.path) == ("resume", str(left[0]))
    assert caught.value.expected != caught.value.found
    assert [path.read_bytes() for path in left] == before
    convert(source, output, replace(OPTIONS, resume=False))
    assert os.listdir(output.parent) == [output.name]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (replace(OPTIONS, quant="q8_row"), "option quant"),
        (replace(OPTIONS, encoder="plain"), "option encoder"),
        (replace(OPTIONS, mean_bits=5.0), "option mean_bits"),
        (replace(OPTIONS, overrides=parse_overrides(("norm=f32",))), "option tensors"),
        (replace(OPTIONS, digests=False), "header"),
        (replace(OPTIONS, source_model="other"), "header"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_changed_option_is_named(options: ConvertOptions, name: str, output: Path, expected: bytes) -> None:
    interrupt(output)
    with pytest.raises(UsageError, match=f"had another {name}"):
        convert(CHECKPOINT, output, options)
    assert go_on(output, expected, replace(OPTIONS, threads=3)) == 8


def test_other_encoders_are_named(output: Path, expected: bytes, tmp_path: Path) -> None:
    interrupt(output)
    (tmp_path / "core").write_bytes(b"another build")
    other = SimpleNamespace(__file__=tmp_path / "core")
    changes = (("convert.resume.__version__", "0.0.0", "version of cortiq"), ("native.core", other, "compiled core"))
    for name, value, found in changes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"cortiq.{name}", value)
            with pytest.raises(UsageError, match=found):
                convert(CHECKPOINT, output, OPTIONS)
    assert go_on(output, expected) == 8


def test_a_torn_partial_is_written_again(output: Path, expected: bytes, tmp_path: Path) -> None:
    left = interrupt(output)
    with cortiq.open(_made(expected, tmp_path)) as file:
        entries, base = list(file.tensors.values()), file.envelope.data.offset
    kept = [path.read_bytes() for path in left]
    for number, entry in enumerate(entries[:8]):
        for at in (entry.off, entry.off + entry.nbytes - 1):
            torn = bytearray(kept[0])
            torn[base + at] ^= 1
            left[0].write_bytes(torn)
            left[1].write_bytes(kept[1])
            assert go_on(output, expected) == number
            output.unlink()


def test_what_is_between_tensors_and_behind_them_becomes_zero(output: Path, expected: bytes, tmp_path: Path) -> None:
    left = interrupt(output)
    with cortiq.open(_made(expected, tmp_path)) as file:
        entries, base = list(file.tensors.values())[:8], file.envelope.data.offset
    dirty = bytearray(b"\xa5" * (len(expected) + 5000))
    for entry in entries:
        span = slice(base + entry.off, base + entry.off + entry.nbytes)
        dirty[span] = expected[span]
    left[0].write_bytes(dirty)
    assert go_on(output, expected) == 8


@pytest.mark.parametrize("size", [0, 1, ENVELOPE, 30_000])
def test_a_shortened_partial(size: int, output: Path, expected: bytes) -> None:
    os.truncate(interrupt(output)[0], size)
    assert go_on(output, expected) < 8


def test_a_journal_counts_as_far_as_it_is_whole(output: Path, expected: bytes) -> None:
    left = interrupt(output)
    kept, journal = left[0].read_bytes(), left[1].read_bytes()
    ends = [at + 1 for at, byte in enumerate(journal) if byte == ord("\n")]
    assert len(ends) == 9
    places = {0, 1, 16, 17, *ends, *(end - 1 for end in ends), *range(0, len(journal), 199)}
    for place in sorted(places):
        whole = sum(end <= place for end in ends)
        flipped = bytes(byte ^ (at == place) for at, byte in enumerate(journal))
        for damaged in (journal[:place], flipped) if place in ends else (journal[:place] + b"\0" * 700,):
            left[0].write_bytes(kept)
            left[1].write_bytes(damaged)
            assert go_on(output, expected) == max(whole - 1, 0)
            output.unlink()


@pytest.mark.parametrize("lines", [[b"no JSON"], [b"[]"], [b"{}", b"no hash"], []])
def test_a_journal_of_another_kind(lines: list[bytes], output: Path, expected: bytes) -> None:
    left = interrupt(output)
    left[1].unlink()
    journal = Journal(left[1])
    journal.append(lines)
    journal.close()
    if b"{}" in lines:  # of a conversion of which nothing is known
        with pytest.raises(UsageError, match="another version of cortiq"):
            convert(CHECKPOINT, output, OPTIONS)
        left[0].unlink()
    assert go_on(output, expected) == 0


def test_a_second_process_is_refused(output: Path, expected: bytes) -> None:
    interrupt(output)
    with PartialFile(output):
        with pytest.raises(Busy, match="another process") as caught:
            convert(CHECKPOINT, output, OPTIONS)
        assert caught.value.code == "locked"
        # One without --resume writes elsewhere, and leaves them alone.
        convert(CHECKPOINT, output, replace(OPTIONS, resume=False))
        assert len(os.listdir(output.parent)) == 3
    output.unlink()
    assert go_on(output, expected) == 8


@contextmanager
def failing(call: str, number: int) -> Iterator[None]:
    """The ``number``-th call of a method of ``Disk`` fails as a broken disk does."""
    real, left = getattr(Disk, call), [number]

    def fails(*arguments: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, call, fails)
        yield


@pytest.mark.parametrize(
    ("call", "step"), [("write_at", 20), ("sync", 12), ("resize", 1), ("allocate", 1), ("rename", 1), ("sync_dir", 1)]
)
def test_a_failing_disk_keeps_what_was_recorded(
    call: str, step: int, output: Path, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortiq.convert.encode.BLOCK_WEIGHTS", 1 << 20)
    monkeypatch.setattr("cortiq.container.partial.SAVE_EVERY", 1)
    number, taken = 1 - step, 0
    while True:
        number += step
        output.unlink(missing_ok=True)
        try:
            with failing(call, number):
                convert(CHECKPOINT, output, OPTIONS)
        except OSError as error:
            assert error.errno == errno.EIO  # noqa: PT017 - it raises until it is not reached any more
        else:
            break
        if output.exists():  # the name was there before the failure
            assert go_on(output, expected, replace(OPTIONS, force=True)) == 0
            continue
        assert partial_path(output).exists() == (len(os.listdir(output.parent)) == 2)
        taken += go_on(output, expected)
    assert number > 1
    assert (taken > 0) == (call in ("write_at", "sync", "rename"))


def test_nothing_is_recorded_after_the_disk_failed(output: Path) -> None:
    error = OSError(errno.EIO, "broken")
    assert Interrupted(8, 0, error).run(lambda: convert(CHECKPOINT, output, OPTIONS))
    assert os.listdir(output.parent) == []


def test_an_error_that_comes_again_leaves_nothing(output: Path, tmp_path: Path) -> None:
    source = copied(tmp_path)
    tensors = load_file(source / "model.safetensors")
    tensors["lm_head.weight"] = np.full_like(tensors["lm_head.weight"], np.nan)
    save_file(tensors, source / "model.safetensors")
    with pytest.raises(NonFinite):
        convert(source, output, OPTIONS)
    assert os.listdir(output.parent) == []


def test_only_files_of_ours_are_gone_on_with(output: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    partial, journal = interrupt(output)
    for path in (partial, journal):
        path.unlink()
        os.link(precious, path)
        with pytest.raises(UsageError, match="not what an interrupted attempt leaves"):
            convert(CHECKPOINT, output, OPTIONS)
        path.unlink()
        path.symlink_to(precious)
        with pytest.raises(OSError, match="symbolic"):
            convert(CHECKPOINT, output, OPTIONS)
        path.unlink()
    assert precious.read_text() == "mine"
    convert(CHECKPOINT, output, OPTIONS)


def test_a_gguf_file(output: Path, tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "llama.gguf", CHECKPOINT, "llama")
    convert(source, output, replace(OPTIONS, resume=False))
    expected = output.read_bytes()
    output.unlink()
    interrupt(output, source=source)
    assert go_on(output, expected, source=source) == 8


def test_requant_goes_on(output: Path, tmp_path: Path, expected: bytes) -> None:
    source = _made(expected, tmp_path)
    options = ConvertOptions(quant="q4tp")
    requant(source, output, options)
    made = output.read_bytes()
    output.unlink()
    options = replace(options, resume=True)
    for target in (output, None):
        for number in (1, 5):
            assert Interrupted(number, 1).run(lambda to=target: requant(source, to, options))  # type: ignore[misc]
        receipt = requant(source, target, options)
        assert any("interrupted" in note for note in receipt.warnings)
        assert receipt.output.read_bytes() == made
        assert not partial_path(receipt.output).exists()


def test_a_set_is_written_in_one_go() -> None:
    with pytest.raises(UsageError, match="cortiq shard") as caught:
        ConvertOptions(resume=True, shard_bytes=10**9)
    assert caught.value.code == "resume"


def _made(content: bytes, folder: Path) -> Path:
    path = folder / "made.cmf"
    path.write_bytes(content)
    return path

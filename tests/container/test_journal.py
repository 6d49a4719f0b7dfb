"""Lines count as far as they are whole, and one process at a time holds them."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from cortiq.container.journal import Journal
from cortiq.errors import Busy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def written(path: Path, *texts: bytes) -> bytes:
    journal = Journal(path)
    journal.append(texts)
    journal.close()
    return path.read_bytes()


def texts_of(path: Path) -> list[bytes]:
    journal = Journal(path)
    journal.close()
    return journal.texts


def test_lines_are_read_back_and_appended_to(path: Path) -> None:
    assert texts_of(path) == []
    written(path, b"one", b"", b"three words here")
    written(path, "vier \N{EURO SIGN}".encode())
    assert texts_of(path) == [b"one", b"", b"three words here", "vier \N{EURO SIGN}".encode()]


def test_every_damage_ends_what_counts(path: Path) -> None:
    texts = [b"one", b"two", b"three"]
    raw = written(path, *texts)
    ends = [at + 1 for at, byte in enumerate(raw) if byte == ord("\n")]
    for place in range(len(raw)):
        whole = texts[: sum(end <= place for end in ends)]
        path.write_bytes(raw[:place])
        assert texts_of(path) == whole
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        assert texts_of(path) == whole
    path.write_bytes(raw[ends[0] :])
    assert texts_of(path) == []
    path.write_bytes(raw[: ends[0]] + raw[ends[1] :])
    assert texts_of(path) == texts[:1]


def test_a_line_takes_the_place_of_what_does_not_count(path: Path) -> None:
    raw = written(path, b"one", b"two", b"three")
    path.write_bytes(raw + b"garbage" * 100)
    journal = Journal(path)
    journal.cut(2)
    assert path.read_bytes() == raw[: raw.rindex(b"three") - 17]
    journal.append([b"four"])
    assert journal.texts == [b"one", b"two", b"four"]
    journal.close()
    assert texts_of(path) == [b"one", b"two", b"four"]


def test_an_interrupted_line_is_written_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reached the file before the interruption is not in the way of the next line."""
    journal = Journal(path)
    journal.append([b"one"])
    real = Journal.disk.write_at

    def part(fd: int, offset: int, data: memoryview) -> None:
        real(fd, offset, data[: len(data) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal.disk, "write_at", part)
        with pytest.raises(KeyboardInterrupt):
            journal.append([b"a long line that is lost"])
    journal.append([b"two"])
    journal.close()
    assert texts_of(path) == [b"one", b"two"]


def test_one_holder_at_a_time(path: Path) -> None:
    journal = Journal(path)
    with pytest.raises(Busy, match="another process") as caught:
        Journal(path)
    assert (caught.value.kind, caught.value.path) == ("Busy.locked", str(path))
    journal.remove()
    assert not path.exists()
    again = Journal(path)
    journal.remove()  # it is not the one by that name any more
    assert path.exists()
    again.close()


def test_a_lock_on_a_removed_file_is_no_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = fcntl.flock, []

    def flock(fd: int, operation: int) -> None:
        calls.append(fd)
        if len(calls) == 1:  # its holder has finished in between
            path.unlink()
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    journal = Journal(path)
    assert len(calls) == 2
    assert path.exists()
    journal.close()

"""A file in several attempts: what is kept of it when, and what is not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cortiq.container.digest_pool import DigestPool
from cortiq.container.envelope import Range
from cortiq.container.hashing import hash64
from cortiq.container.partial import PartialFile, partial_path, remove_partial
from cortiq.errors import UsageError

FACTS = {"option quant": '"q8_row"', "header": "00"}
PAYLOADS = [Range(200, 100), Range(320, 40), Range(360, 0), Range(400, 600)]
SIZE = 1010
CONTENT = [bytes([65 + i]) * payload.nbytes for i, payload in enumerate(PAYLOADS)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def attempt(path: Path, payloads: int, error: BaseException | None) -> int:
    """Write so many payloads; the number of those that were kept of earlier attempts."""
    with PartialFile(path) as output:
        output.take_over(FACTS, PAYLOADS, SIZE)
        kept = len(output.kept)
        with DigestPool(output.fd, [payload.digest for payload in output.kept]) as pool, output.following(pool):
            for content, at in list(zip(CONTENT, PAYLOADS, strict=True))[kept:payloads]:
                output.write_at(at.offset, memoryview(content))
                pool.add(at.offset, at.nbytes)
                output.finished(hash64(content), at.nbytes)
            if error is not None:
                raise error
        output.commit()
    return kept


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.iterdir())


def test_attempts_add_up(path: Path) -> None:
    for payloads in (1, 1, 3):
        with pytest.raises(KeyboardInterrupt):
            attempt(path, payloads, KeyboardInterrupt())
        assert names(path) == [".file.partial", ".file.partial.journal"]
        assert len(journal_of(path).read_bytes().splitlines()) == 1 + payloads
    assert attempt(path, 4, None) == 3
    assert names(path) == ["file"]
    expected = bytearray(SIZE)
    for content, at in zip(CONTENT, PAYLOADS, strict=True):
        expected[at.offset : at.end] = content
    assert path.read_bytes() == expected


def test_a_line_has_both_hashes(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(path, 3, KeyboardInterrupt())
    texts = [line[17:] for line in journal_of(path).read_text().splitlines()]
    assert json.loads(texts[0]) == FACTS
    assert texts[1:] == [f"{hash64(content):016x} {hashlib.sha256(content).hexdigest()}" for content in CONTENT[:3]]


def test_nothing_is_left_where_nothing_was_done(path: Path) -> None:
    with PartialFile(path):
        pass
    with pytest.raises(KeyboardInterrupt):
        attempt(path, 0, KeyboardInterrupt())
    assert names(path) == []


@pytest.mark.parametrize("error", [UsageError("x", code="x"), None])
def test_an_error_of_ours_or_leaving_early_ends_all_attempts(error: UsageError | None, path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(path, 2, KeyboardInterrupt())
    if error is not None:
        with pytest.raises(UsageError):
            attempt(path, 3, error)
    else:
        with PartialFile(path) as output:
            output.take_over(FACTS, PAYLOADS, SIZE)
    assert names(path) == []


@pytest.mark.parametrize(
    "facts",
    [{**FACTS, "header": "01"}, {"header": "00"}, {**FACTS, "more": ""}, {}],
    ids=["other", "less", "more", "none"],
)
def test_other_facts_change_nothing(facts: dict[str, str], path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(path, 2, KeyboardInterrupt())
    before = partial_path(path).read_bytes(), journal_of(path).read_bytes()
    with pytest.raises(UsageError, match="had another") as caught, PartialFile(path) as output:
        output.take_over(facts, PAYLOADS, SIZE)
    assert caught.value.kind == "UsageError.resume"
    assert (partial_path(path).read_bytes(), journal_of(path).read_bytes()) == before
    assert attempt(path, 4, None) == 2


def test_removing_leaves_what_another_process_holds(path: Path) -> None:
    remove_partial(path)
    with pytest.raises(KeyboardInterrupt):
        attempt(path, 2, KeyboardInterrupt())
    with PartialFile(path):
        remove_partial(path)
        assert len(names(path)) == 2
    remove_partial(path)
    assert names(path) == []


def journal_of(path: Path) -> Path:
    return path.with_name(".file.partial.journal")

"""Verifying: every damaged byte is found, and every other byte is accounted for."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest

from builders.cmf import Q4_BLOCK, VBIT, Cmf, T, header, pattern
from cortiq.container import Finding, hashing, open_single, verify
from cortiq.container.hash64 import hash64 as definition
from cortiq.container.hashing import StreamHash
from cortiq.errors import CortiqError, HashMismatch, Parse, UsageError


@pytest.mark.parametrize("section", ["masks", "vocab", "index"])
def test_h3_section_byte_flipped(cmf, opened, section):
    inside = {"masks": cmf.get("masks_len") - 1, "vocab": 3, "index": 8}  # a gate, a letter, a task
    at = cmf.get(f"{section}_off") + inside[section]
    report = verify(opened(cmf.put(at, bytes([cmf.data[at] ^ 1]))))
    assert [problem.kind for problem in report.problems] == [f"HashMismatch.{section}"]
    assert report.problems[0].path is not None
    with pytest.raises(HashMismatch):
        report.raise_first()


def test_h2_hash_of_an_absent_section_warns(opened):
    file = opened(Cmf(header(section_hashes={"masks": "0123456789abcdef"}), []).build())
    assert [warning.kind for warning in verify(file).warnings] == ["Parse.section_hash_stale"]


def test_h2_section_without_a_hash_is_unhashed(cmf, opened):
    report = verify(opened(cmf.with_header(section_hashes={"masks": "0"})))
    assert report.unhashed == ("masks", "vocab", "index")
    assert report.ok


def test_h1_hash_digits_of_another_writer_warn(cmf, opened):
    vocab = f"{definition(cmf.vocab):X}"
    report = verify(opened(cmf.with_header(section_hashes={"vocab": vocab})))
    assert report.ok
    assert "Parse.section_hash_digits" in [warning.kind for warning in report.warnings]


def test_one_flipped_bit_in_every_byte(cmf, tmp_path):
    """Strict verification finds each; the plain one all but padding, flags and the like."""
    path = cmf.save(tmp_path / "model.cmf")
    whole = bytes(cmf.data)
    padding = np.ones(len(whole), bool)
    for name in ("header", "dir", "masks", "vocab", "index"):
        padding[cmf.get(f"{name}_off") : cmf.get(f"{name}_off") + cmf.get(f"{name}_len")] = False
    for i in range(len(cmf.tensors)):
        start = cmf.get("data_off") + cmf.get_record(i, "off")
        padding[start : start + cmf.get_record(i, "nbytes")] = False
    step = 83  # coprime to the sizes of words and records: all kinds of byte occur
    for at in [*range(128), *range(128, len(whole), step)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        found, strict = _kinds(path, strict=False), _kinds(path, strict=True)
        assert strict, at
        assert found or padding[at], at


def _kinds(path, *, strict):
    try:
        with open_single(path) as file:
            return [problem.kind for problem in verify(file, threads=1, strict=strict).problems]
    except CortiqError as error:
        return [error.kind]


def test_feature_bits_against_the_content_warn(cmf, opened):
    file = opened(cmf.set("features", 0b101))
    assert [warning.kind for warning in verify(file).warnings] == ["Parse.feature_bits"]


def test_content_rules_are_checked(opened):
    rows, bits = 4, bytes([3, 7, 4, 8])
    file = opened(Cmf(header(), [T("t", VBIT, (rows, 32), bits + bytes(2 * rows + 12 + 16 + 28 + 32))]).build())
    report = verify(file)
    assert [problem.kind for problem in report.problems] == ["Parse.vbit_bits"]
    assert report.problems[0].tensor == "t"


def test_progress_ends_at_the_total(cmf, opened):
    calls = []
    report = verify(opened(cmf), progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (report.bytes, report.bytes)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_all_bytes_are_accounted_for(cmf, opened):
    report = verify(opened(cmf))
    assert report.bytes + report.padding + report.dead + 128 == len(cmf.data)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_do_not_matter(cmf, opened, threads):
    tensors = [T(f"t{i}", 6, (n,), pattern(n, i)) for i, n in enumerate((5_000_003, 0, 1, 7, 8, 9, 100_000))]
    file = opened(cmf.with_tensors(*tensors))
    assert verify(file, threads=threads).ok


@pytest.mark.parametrize("native", [True, False])
def test_stream_hash_is_that_of_the_whole(monkeypatch, native):
    if not native:
        monkeypatch.setattr(hashing, "native", None)
    elif hashing.native is None:
        pytest.skip("the native core is not built")
    content = pattern(1000, 5)
    for cuts in ((0, 1000), (0, 3, 5, 8, 13, 21, 1000), (0, 8, 16, 999, 1000), (0, 1, 2, 3, 4, 5, 6, 7, 1000)):
        state = StreamHash()
        for a, b in pairwise(cuts):
            state.update(memoryview(content[a:b]))
        assert state.digest() == definition(content) == hashing.hash64(content)


def test_no_threads_cannot_be_meant(cmf, opened):
    with pytest.raises(UsageError):
        verify(opened(cmf), threads=0)


def test_quick_reads_no_blob(cmf, opened, monkeypatch):
    file = opened(cmf.put(cmf.get("data_off") + 5, b"x"))
    report = verify(file, level="quick")
    assert (report.level, report.checked, report.ok) == ("quick", 2, True)
    assert report.bytes == file.envelope.header.nbytes + file.envelope.directory.nbytes
    assert not verify(file).ok


def test_quick_reports_what_metadata_shows(cmf, opened):
    cmf.set("flags", 1).set("dir_hash", 0)
    report = verify(opened(cmf.with_header(section_hashes={}).set("flags", 1).set("dir_hash", 0)), level="quick")
    assert report.unhashed == ("directory", "masks", "vocab", "index")
    assert [warning.kind for warning in report.warnings] == ["Parse.flags"]
    assert not verify(opened(cmf), level="quick", strict=True, require_hashes=True).ok


def test_levels_that_cannot_be_meant(cmf, opened):
    file = opened(cmf)
    for options in ({"level": "deep"}, {"level": "quick", "checks": [lambda _: iter(())]}):
        with pytest.raises(UsageError) as caught:
            verify(file, **options)
        assert caught.value.code == "level"


def test_further_checks_make_it_deep(cmf, opened):
    def check(file):
        yield Finding(Parse("bad", code="bad"))
        yield Finding(Parse("odd", code="odd"), problem=False)

    report = verify(opened(cmf), checks=[check])
    assert report.level == "deep"
    assert [p.kind for p in report.problems] == ["Parse.bad"]
    assert [w.kind for w in report.warnings] == ["Parse.odd"]
    assert report.problems[0].path is not None


def test_registered_content_checks_run(cmf, opened, monkeypatch):
    found = Finding(Parse("bad mask", code="mask_tail", section="masks"))
    module = sys.modules["cortiq.container.verify"]  # the package offers the function of that name
    monkeypatch.setattr(module, "CONTENT_CHECKS", (lambda file: iter([found]),))
    assert [p.kind for p in verify(opened(cmf)).problems] == ["Parse.mask_tail"]
    assert verify(opened(cmf), level="quick").ok


def test_j6_a_later_shard_with_what_only_the_first_should_have(cmf, opened):
    report = verify(opened(cmf.with_header(shard={"no": 2, "count": 2})))
    found = [warning.found for warning in report.warnings if warning.kind == "Parse.shard_extra"]
    assert found == ["masks", "vocab", "index", "tokenizer_config"]
    first = verify(opened(cmf.with_header(shard={"no": 1, "count": 2})))
    assert "Parse.shard_extra" not in [warning.kind for warning in first.warnings]


def test_what_is_odd_in_a_tensor_says_where(opened):
    payload = bytes(16) + b"\xff" * 16 + bytes(4)
    tensors = [T("even", Q4_BLOCK, (1, 64), payload), T("odd", Q4_BLOCK, (1, 33), payload)]
    file = opened(Cmf(header(), tensors).build())
    (warning,) = verify(file).warnings
    at = file.envelope.data.offset + file["odd"].entry.off
    assert (warning.kind, warning.section, warning.tensor) == ("Parse.q4_block_padding", "data", "odd")
    assert (warning.offset, warning.path) == (at, str(file.path))
    assert [problem.kind for problem in verify(file, strict=True).problems] == [warning.kind]

"""Strong digests: what a file carries, what they see that hash64 does not, and files without them."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from builders.cmf import F16, U8, Cmf, T, header, pattern, two_layers
from cortiq.container import TensorSpec, copy, open_single, record_layout, verify, write_file
from cortiq.container.digest import TENSOR, read_digests
from cortiq.container.digest_pool import DigestPool
from cortiq.errors import CortiqError, Parse, UnsupportedFeature

MASKS = two_layers().masks
SIZES = {"a": 100, "empty": 0, "large": 3_000_001, "b.weight": 8192, "c.weight": 8192}


def payload(name: str) -> bytes:
    return np.random.default_rng(len(name) + SIZES[name]).integers(0, 256, SIZES[name], np.uint8).tobytes()


def specs() -> list[TensorSpec]:
    return [TensorSpec(name, U8, (n,), n, [payload(name)]) for name, n in SIZES.items()]


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.cmf"
    write_file(target, header(), specs(), vocab=b'{"v": 1}', masks=MASKS)
    return target


def kinds(path, **options):
    with open_single(path) as file:
        report = verify(file, **options)
        return [(p.kind, p.tensor or p.section) for p in report.problems]


def patched(path, at, content):
    data = bytearray(path.read_bytes())
    data[at : at + len(content)] = content
    path.write_bytes(data)


def test_what_is_written(path):
    with open_single(path) as file:
        assert list(file)[-1] == TENSOR
        entry = file.tensors[TENSOR]
        assert (entry.dtype, entry.shape, entry.nbytes) == (U8, (5, 32), 160)
        assert bytes(file[TENSOR].raw) == b"".join(hashlib.sha256(payload(name)).digest() for name in SIZES)
        field = file.header["digests"]
        assert (field["alg"], field["tensor"]) == ("sha256", TENSOR)
        wanted = {name: hashlib.sha256(file.section(name)).hexdigest() for name in ("masks", "vocab", "directory")}
        assert dict(field["sections"]) == wanted
        report = verify(file, strict=True, require_hashes=True)
        assert report.ok
        assert report.level == "full"
        assert report.digests == len(SIZES) + 3


def test_equal_input_gives_equal_bytes_however_it_is_cut(path, tmp_path):
    cut = [
        TensorSpec(s.name, s.dtype, s.shape, s.nbytes, [payload(s.name)[:70], payload(s.name)[70:]]) for s in specs()
    ]
    write_file(tmp_path / "2.cmf", header(), cut, vocab=b'{"v": 1}', masks=MASKS)
    assert (tmp_path / "2.cmf").read_bytes() == path.read_bytes()


def test_a_producer_may_use_its_buffer_again(tmp_path):
    def chunks(seed):
        buffer = bytearray(1 << 16)
        for i in range(64):
            buffer[:] = bytes([seed + i]) * len(buffer)
            yield buffer

    tensors = [TensorSpec(f"t{i}", U8, (1 << 22,), 1 << 22, chunks(i)) for i in range(3)]
    write_file(tmp_path / "x.cmf", header(), tensors)
    assert kinds(tmp_path / "x.cmf") == []


def test_without(tmp_path):
    write_file(tmp_path / "x.cmf", header(), specs(), digests=False)
    with open_single(tmp_path / "x.cmf") as file:
        assert TENSOR not in file
        assert "digests" not in file.header
        assert read_digests(file) is None
        assert verify(file).digests is None


def test_those_of_another_file_are_made_anew_or_dropped(path, tmp_path):
    with open_single(path) as file:
        tensors = [TensorSpec(n, e.dtype, e.shape, e.nbytes, [file[n].raw]) for n, e in file.tensors.items()]
        changed = [tensors[-1], *tensors[1:-1]]
        write_file(tmp_path / "with.cmf", file.header.to_dict(), changed)
        write_file(tmp_path / "without.cmf", file.header.to_dict(), changed, digests=False)
    assert kinds(tmp_path / "with.cmf", strict=True) == []
    with open_single(tmp_path / "with.cmf") as file:
        assert file.tensors[TENSOR].shape == (4, 32)
    with open_single(tmp_path / "without.cmf") as file:
        assert TENSOR not in file
        assert "digests" not in file.header


def test_copy_gives_the_same_bytes(path, tmp_path):
    with open_single(path) as file:
        copy(file, tmp_path / "copy.cmf")
    assert (tmp_path / "copy.cmf").read_bytes() == path.read_bytes()


def test_layout_is_kept_with_them(path, tmp_path):
    with open_single(path) as file:
        tensors = [TensorSpec(s.name, s.dtype, s.shape, s.nbytes, s.chunks) for s in specs()]
        layout = record_layout(file)
        fields = {name: file.header[name] for name in ("arch", "quant_type", "format", "version")}
        fields = json.loads(json.dumps(fields, default=dict))
        write_file(
            tmp_path / "x.cmf",
            {**header(), **fields},
            tensors,
            vocab=b'{"v": 1}',
            masks=MASKS,
            layout=layout,
        )
    assert kinds(tmp_path / "x.cmf", strict=True) == []


def test_an_unknown_section_cannot_be_meant(tmp_path):
    with pytest.raises(TypeError, match="vocabulary"):
        write_file(tmp_path / "x.cmf", header(), [], vocabulary=b"{}")


class TestWhatHash64DoesNotSee:
    def test_l3_swapped_blocks_in_one_tensor(self, path):
        with open_single(path) as file:
            at = file.envelope.data.offset + file.tensors["large"].off
            block = bytes(file["large"].raw[:8192])
        patched(path, at, block[4096:] + block[:4096])
        assert kinds(path) == [("HashMismatch.digest", "large")]

    def test_swapped_words(self, path):
        with open_single(path) as file:
            at = file.envelope.data.offset + file.tensors["b.weight"].off
            words = bytes(file["b.weight"].raw[:24])
        patched(path, at, words[16:] + words[8:16] + words[:8])
        assert kinds(path) == [("HashMismatch.digest", "b.weight")]

    def test_a_uniform_page_replaced_by_another(self, tmp_path):
        target = tmp_path / "x.cmf"
        write_file(target, header(), [TensorSpec("zero", U8, (4096,), 4096, [bytes(4096)])])
        with open_single(target) as file:
            at = file.envelope.data.offset
        patched(target, at, b"a" * 4096)
        assert kinds(target) == [("HashMismatch.digest", "zero")]

    def test_swapped_words_of_a_section(self, path):
        with open_single(path) as file:
            start = file.mask_meta.masks[1].offset
            at, bits = file.envelope.masks.offset + start, bytes(file.section("masks"))[start : start + 16]
        assert bits[:8] != bits[8:]
        patched(path, at, bits[8:] + bits[:8])
        assert kinds(path) == [("HashMismatch.digest", "masks")]

    def test_swapped_words_of_the_names(self, tmp_path):
        """Two tensors that trade names: no payload changed, and hash64 of the directory neither."""
        target = tmp_path / "x.cmf"
        write_file(
            target, header(), [TensorSpec(n, U8, (64,), 64, [pattern(64, ord(n[0]))]) for n in ("one.....", "two.....")]
        )
        with open_single(target) as file:
            at = file.envelope.directory.offset + file.tensors.raw.index(b"one.....")
        assert (at - file.envelope.directory.offset) % 8 == 0
        patched(target, at, b"two.....one.....")
        assert kinds(target) == [("HashMismatch.digest", "directory")]

    def test_all_of_it_passes_without_them(self, tmp_path):
        target = tmp_path / "x.cmf"
        content = pattern(8192)
        write_file(target, header(), [TensorSpec("t", U8, (8192,), 8192, [content])], digests=False)
        with open_single(target) as file:
            at = file.envelope.data.offset
        patched(target, at, content[4096:] + content[:4096])
        assert kinds(target) == []


@pytest.mark.parametrize("row", ["l2", "l3"])
def test_l2_l3_every_page_zeroed_or_swapped_with_the_next(tmp_path, row):
    path = tmp_path / "x.cmf"
    rng = np.random.default_rng(5)
    tensors = [TensorSpec(f"t{i}", U8, (n,), n, [rng.bytes(n)]) for i, n in enumerate((16384, 5000, 40960))]
    write_file(path, header(), tensors, vocab=b"{}" + b" " * 9000)
    whole = path.read_bytes()
    for at in range(0, len(whole) - 4096, 4096):
        page, following = whole[at : at + 4096], whole[at + 4096 : at + 8192].ljust(4096, b"\0")
        damage = bytes(4096) if row == "l2" else following + page
        path.write_bytes((whole[:at] + damage + whole[at + len(damage) :])[: len(whole)])
        if path.read_bytes() == whole:
            continue
        try:
            found = kinds(path)
        except CortiqError as error:
            found = [(error.kind, "open")]
        assert found, at


def with_digests(field, rows=bytes(32), dtype=U8):
    tensors = [T("a", F16, (4,), bytes(8)), T(TENSOR, dtype, (len(rows),) if dtype == U8 else (len(rows) // 2,), rows)]
    return Cmf(header(digests=field), tensors).build()


GOOD = {"alg": "sha256", "tensor": TENSOR, "sections": {}}


@pytest.mark.parametrize(
    "made",
    [
        with_digests([1]),
        with_digests(GOOD | {"tensor": "a"}),
        with_digests(GOOD | {"sections": []}),
        with_digests(GOOD | {"sections": {"header": "0" * 64}}),
        with_digests(GOOD | {"sections": {"vocab": "0" * 63}}),
        with_digests(GOOD | {"sections": {"vocab": "A" * 64}}),
        with_digests(GOOD, bytes(31)),
        with_digests(GOOD, bytes(64)),
        with_digests(GOOD, bytes(32), F16),
        Cmf(header(digests=GOOD), [T("a", F16, (4,), bytes(8))]).build(),
    ],
    ids=["list", "tensor", "sections", "section", "short", "upper", "less", "more", "dtype", "absent"],
)
def test_digests_that_cannot_be_read(made, opened):
    file = opened(made)
    with pytest.raises(Parse) as caught:
        read_digests(file)
    assert caught.value.code == "digests"
    report = verify(file)
    assert "Parse.digests" in [problem.kind for problem in report.problems]
    assert report.digests is None


def test_digests_of_another_kind_are_told_not_checked(opened):
    file = opened(with_digests({"alg": "sha3", "tensor": TENSOR}))
    with pytest.raises(UnsupportedFeature):
        read_digests(file)
    report = verify(file)
    assert report.ok
    assert [w.kind for w in report.warnings] == ["UnsupportedFeature.digests"]
    assert not verify(file, strict=True).ok


def test_wrong_digest_and_vanished_section(opened):
    file = opened(with_digests(GOOD | {"sections": {"vocab": "0" * 64}}))
    found = [(p.kind, p.tensor or p.section) for p in verify(file).problems]
    assert found == [("HashMismatch.digest", "vocab"), ("HashMismatch.digest", "a")]


def test_digests_without_their_announcement_warn(opened):
    file = opened(Cmf(header(), [T("a", F16, (4,), bytes(8)), T(TENSOR, U8, (32,), bytes(32))]).build())
    assert [w.kind for w in verify(file).warnings] == ["Parse.digests_stray"]


def test_each_file_of_a_set_has_a_tensor_of_its_own_name(tmp_path):
    for no, name in ((1, TENSOR), (2, f"{TENSOR}.00002")):
        target = tmp_path / f"{no}.cmf"
        tensors = [TensorSpec(f"{TENSOR}.00007", U8, (4,), 4, [b"gone"]), TensorSpec("t", U8, (4,), 4, [b"kept"])]
        write_file(target, header(shard={"no": no, "count": 2}), tensors)
        with open_single(target) as file:
            assert list(file) == ["t", name]
            assert file.header["digests"]["tensor"] == name
            report = verify(file, strict=True)
            assert report.ok
            assert report.digests == 2
            copy(file, tmp_path / "copy.cmf")
        assert (tmp_path / "copy.cmf").read_bytes() == target.read_bytes()


def test_pool_notices_a_file_that_shrank(tmp_path):
    with (tmp_path / "x").open("w+b") as stream, DigestPool(stream.fileno()) as pool:
        pool.add(0, 10)
        with pytest.raises(OSError, match="shorter"):
            pool.digests()


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_matter(path, threads):
    assert kinds(path, threads=threads) == []

"""Ranges over HTTP, against servers that do what servers do."""

from __future__ import annotations

import datetime
import ipaddress
import os
import time
from email.utils import format_datetime
from pathlib import Path

import pytest

from builders.cmf import pattern
from builders.range_server import (
    Answer,
    Fault,
    RangeServer,
    cut,
    drip,
    header,
    proper,
    redirect,
    stall,
    status,
    whole_file,
)
from cortiq.container.location import locate
from cortiq.container.ranges import MOST_REDIRECTS, Patience, RangeReader
from cortiq.errors import Changed, NetworkError

CONTENT = pattern(300_000, 5)
PATIENCE = Patience(timeout=0.4, tries=3, pause=0.01)

pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.bin"
    path.write_bytes(CONTENT)
    return path


def reader(server: RangeServer, patience: Patience = PATIENCE) -> RangeReader:
    return RangeReader(locate(server.url), patience)


def read(source: RangeReader, offset: int, nbytes: int) -> bytes:
    found = bytearray()
    source.read_into(found, offset, nbytes)
    return bytes(found)


def refused(server: RangeServer, code: str, tries: int | None = None) -> NetworkError:
    """The error of the first request, of exactly this code, after this many requests."""
    with pytest.raises(NetworkError) as caught:
        reader(server).begin(100_000)
    assert (caught.value.kind, caught.value.path) == (f"NetworkError.{code}", server.url)
    assert caught.value.exit_code == 9
    if tries is not None:
        assert len(server.asked) == tries
        assert (f"tried {tries} times" in caught.value.message) is (tries > 1)
    return caught.value


def test_ranges(path: Path) -> None:
    with RangeServer(path) as server:
        source = reader(server)
        assert source.begin(1000) == CONTENT[:1000]
        assert source.size == len(CONTENT)
        assert read(source, 5000, 100_000) == CONTENT[5000:105_000]
        assert read(source, len(CONTENT) - 1, 1) == CONTENT[-1:]
        assert read(source, 7, 0) == b""
        assert server.ranges() == ["bytes=0-999", "bytes=5000-104999", "bytes=299999-299999"]
        assert (source.requests, source.received) == (3, server.sent)
        assert {asked.headers["accept-encoding"] for asked in server.asked} == {"identity"}
        assert all(asked.headers["user-agent"].startswith("cortiq/") for asked in server.asked)


def test_large_ranges_come_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cortiq.container.ranges.PIECE", 100_000)
    with RangeServer(path, [proper, cut(1), cut(2), proper, cut(3), cut(4)]) as server:
        source = reader(server)
        source.begin(10)
        assert read(source, 0, len(CONTENT)) == CONTENT
        assert len(server.asked) == 1 + 3 + 4 - 1 + 1


@pytest.mark.parametrize("size", [0, 10])
def test_a_small_file_is_all_of_it(size: int, path: Path) -> None:
    path.write_bytes(CONTENT[:size])
    with RangeServer(path) as server:
        source = reader(server)
        assert source.begin(1000) == CONTENT[:size]
        assert source.size == size
        source.check_unchanged()


def test_no_ranges(path: Path) -> None:
    os.truncate(path, 200_000_000)
    with RangeServer(path, always=whole_file) as server:
        error = refused(server, "ranges", 1)
        assert "200000000 bytes" in str(error.found)
        assert server.sent < 20_000_000


@pytest.mark.parametrize(
    ("code", "kind"), [(401, "access"), (403, "access"), (404, "not_found"), (410, "not_found"), (400, "status")]
)
def test_refusals(code: int, kind: str, path: Path) -> None:
    with RangeServer(path, always=status(code, X_Error_Message="Gated. \x1b[31mAsk.")) as server:
        error = refused(server, kind, 1)
        assert error.found == f"status {code}"
        assert "it says: Gated." in error.message


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(code: int, path: Path) -> None:
    with RangeServer(path, [status(code), status(code)]) as server:
        assert reader(server).begin(10) == CONTENT[:10]
        assert len(server.asked) == 3
    with RangeServer(path, always=status(code)) as server:
        assert f"status {code}" in refused(server, "status", 3).message


def test_pauses_grow(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("cortiq.container.ranges.time.sleep", slept.append)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)
    faults = [status(503), status(503), status(429, Retry_After="7"), status(503, Retry_After=format_datetime(later))]
    with RangeServer(path, faults) as server:
        reader(server, Patience(timeout=2, tries=5, pause=0.5)).begin(10)
    assert slept[:3] == [0.5, 1.0, 7.0]
    assert 25 < slept[3] <= 30


def test_retry_after_is_honoured(path: Path) -> None:
    with RangeServer(path, [status(429, Retry_After="1")]) as server:
        begun = time.monotonic()
        assert reader(server).begin(10) == CONTENT[:10]
        assert time.monotonic() - begun >= 1


@pytest.mark.parametrize("wait", ["3600", "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_nobody_waits_an_hour(wait: str, path: Path) -> None:
    with RangeServer(path, always=status(429, Retry_After=wait)) as server:
        assert "asks to come back in" in refused(server, "status", 1).message


@pytest.mark.parametrize(("fault", "code"), [(stall(30), "timeout"), (cut(0), "connection")])
def test_broken_transfers(fault: Fault, code: str, path: Path) -> None:
    with RangeServer(path, [fault]) as server:
        assert reader(server).begin(1000) == CONTENT[:1000]
        assert len(server.asked) == 2
    with RangeServer(path, always=fault) as server:
        refused(server, code, 3)


def test_short_bodies_go_on(path: Path) -> None:
    with RangeServer(path, [cut(100), cut(50)]) as server:
        assert reader(server).begin(1000) == CONTENT[:1000]
        assert server.ranges() == ["bytes=0-999", "bytes=100-999", "bytes=150-999"]


def test_an_answer_without_a_length_that_ends_early(path: Path) -> None:
    def fault(answer: Answer) -> None:
        answer.measured, answer.stop = False, 100

    with RangeServer(path, [fault]) as server:
        assert reader(server).begin(1000) == CONTENT[:1000]
        assert len(server.asked) == 2
    with RangeServer(path, [proper], always=fault) as server:
        source = reader(server)
        source.begin(10)
        with pytest.raises(NetworkError, match=r"NetworkError\.short"):
            read(source, 100, 10)


def test_a_trickle_is_no_answer(path: Path) -> None:
    with RangeServer(path, always=drip(0.01)) as server:
        refused(server, "slow", 3)
        assert server.ranges()[1] != "bytes=0-99999"


def test_nobody_there(path: Path) -> None:
    with RangeServer(path) as server:
        gone = reader(server)
    with pytest.raises(NetworkError, match="tried 3 times") as caught:
        gone.begin(10)
    assert caught.value.kind == "NetworkError.connection"


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (header("Content-Range", "bytes 1-100000/300000"), "content_range"),
        (header("Content-Range", "bytes 0-99998/300000"), "content_range"),
        (header("Content-Range", "bytes 0-100000/300000"), "content_range"),
        (header("Content-Range", "bytes 0-99999/*"), "content_range"),
        (header("Content-Range", "pages 0-99999/300000"), "content_range"),
        (header("Content-Range", None), "content_range"),
        (header("Content-Encoding", "gzip"), "encoding"),
        (header("Content-Length", "99998"), "length"),
        (status(416, Content_Range="bytes */300000"), "content_range"),
        (status(416), "content_range"),
        (status(302), "redirect"),
        (redirect("file:///etc/passwd"), "redirect"),
        (status(204), "status"),
    ],
)
def test_answers_that_are_not_what_was_asked(fault: Fault, code: str, path: Path) -> None:
    with RangeServer(path, always=fault) as server:
        refused(server, code, 1)


def test_more_than_was_asked(path: Path) -> None:
    def fault(answer: Answer) -> None:
        answer.measured = False
        answer.stop += 1

    with RangeServer(path, always=fault) as server:
        refused(server, "length", 1)


@pytest.mark.parametrize(
    "fault",
    [
        header("ETag", '"second"'),
        header("Content-Range", "bytes 10-19/300001"),
        status(416, Content_Range="bytes */5"),
    ],
)
def test_another_file_than_before(fault: Fault, path: Path) -> None:
    with RangeServer(path, [proper], always=fault) as server:
        source = reader(server)
        source.begin(10)
        with pytest.raises(Changed, match="replaced") as caught:
            read(source, 10, 10)
        assert (caught.value.kind, caught.value.path) == ("Changed.file", server.url)
        assert len(server.asked) == 2


def test_last_modified_counts_where_there_is_no_etag(path: Path) -> None:
    def modified(value: str) -> Fault:
        def fault(answer: Answer) -> None:
            del answer.headers["ETag"]
            answer.headers["Last-Modified"] = value

        return fault

    with RangeServer(path, [modified("Monday"), modified("Monday"), modified("Tuesday")]) as server:
        source = reader(server)
        source.begin(10)
        source.check_unchanged()
        with pytest.raises(Changed, match="last-modified Monday"):
            source.check_unchanged()


def test_changed_in_the_middle_of_a_range(path: Path) -> None:
    with RangeServer(path, [cut(10), header("ETag", '"second"')]) as server, pytest.raises(Changed):
        reader(server).begin(1000)


def test_redirects_are_remembered(path: Path) -> None:
    with RangeServer(path) as store, RangeServer(path, [redirect(f"{store.host}/signed?key=1")]) as server:
        source = reader(server)
        assert source.begin(10) == CONTENT[:10]
        assert read(source, 10, 10) == CONTENT[10:20]
        assert [asked.path for asked in store.asked] == ["/signed?key=1"] * 2
        assert len(server.asked) == 1
        assert not [asked for asked in store.asked if asked.headers["user-agent"].startswith("cortiq/")]


def test_an_address_that_expired_is_asked_for_again(path: Path) -> None:
    with RangeServer(path, [proper, status(403)]) as store, RangeServer(path) as server:
        server.always = redirect(f"{store.host}/signed")
        source = reader(server)
        source.begin(10)
        assert read(source, 10, 10) == CONTENT[10:20]
        assert (len(server.asked), len(store.asked)) == (2, 3)
        store.always = status(403)
        with pytest.raises(NetworkError, match=r"NetworkError\.access"):
            read(source, 20, 10)


def test_the_hub_names_the_version_in_its_redirect(path: Path) -> None:
    with RangeServer(path, [proper, status(403)]) as store:
        moved = [status(302, Location=f"{store.host}/x", X_Linked_Etag=f'"{i}"') for i in range(2)]
        with RangeServer(path, moved) as server:
            source = reader(server)
            source.begin(10)
            with pytest.raises(Changed, match="x-linked-etag"):
                read(source, 10, 10)


def test_stores_have_names_of_their_own(path: Path) -> None:
    with RangeServer(path, [proper, status(403)]) as first, RangeServer(path) as second:
        second.etag = '"another name of the same"'
        with RangeServer(path, [redirect(f"{first.host}/a"), redirect(f"{second.host}/b")]) as server:
            source = reader(server)
            source.begin(10)
            assert read(source, 10, 10) == CONTENT[10:20]


def test_redirects_without_end(path: Path) -> None:
    with RangeServer(path) as server:
        server.always = redirect("/again")
        refused(server, "redirect", None)
        assert len(server.asked) == MOST_REDIRECTS + 1


def test_no_way_from_https_to_http(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with RangeServer(path) as plain, RangeServer(path, [proper], tls=certificate) as server:
        server.always = redirect(plain.url)
        source = reader(server)
        assert source.begin(10) == CONTENT[:10]
        with pytest.raises(NetworkError, match="from https to http") as caught:
            read(source, 10, 10)
        assert caught.value.code == "redirect"
        assert not plain.asked


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Certificate and key of 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths[1].write_bytes(key.private_bytes(*plain))
    return paths

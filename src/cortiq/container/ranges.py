"""Ranges of a file on an HTTP server (RFC 9110): asked for, checked, and asked for again when the transfer broke.

The client is that of huggingface-hub, with the proxies and certificates people have set. It is imported when the first
range is asked for. This module knows nothing of CMF.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any
from urllib.parse import urljoin, urlsplit

from cortiq.container.location import SCHEMES, Location
from cortiq.errors import Changed, NetworkError, UsageError

PIECE = 1 << 25  # bytes asked for at once, each with tries of its own
MOST_REDIRECTS = 5
MOST_WAIT = 60.0  # seconds a server may ask us to wait
SLOWEST = 1024  # bytes a second; below this an answer counts as broken once ``timeout`` is over
_REDIRECTS = (301, 302, 303, 307, 308)
_REFUSED = {401: "access", 403: "access", 404: "not_found", 410: "not_found"}
_WORDS = {"access": "the server refuses access", "not_found": "there is no such file"}
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what.

    ``timeout``  seconds without a byte, or to connect
    ``tries``    how often a range is asked for in all
    ``pause``    seconds before the second time, twice as many before each further one
    """

    timeout: float = 20.0
    tries: int = 5
    pause: float = 0.5


class RangeReader:
    """Reads ranges of one file, which has to stay the same file.

    ``size`` is known once ``begin`` has run. ``requests`` and ``received`` count what was asked and the bytes of
    bodies that came. May be used by several threads.

    Every method raises NetworkError: ``connection``, ``timeout``, ``slow``, ``short`` and ``status`` after as many
    tries as there are, ``ranges`` for a server that sends whole files only, ``access``, ``not_found``, ``redirect``,
    ``content_range``, ``encoding`` and ``length`` at once. Changed.file when another file answers than before.
    """

    def __init__(self, location: Location, patience: Patience | None = None) -> None:
        self.location = location
        self.size = 0
        self.requests = 0
        self.received = 0
        self._patience = patience or Patience()
        self._known = False
        self._target = location.url
        self._identity: dict[tuple[str, str], str] = {}

    def begin(self, nbytes: int) -> bytes:
        """The first bytes, at most ``nbytes``. The answer says how large the file is and what version of it."""
        found = bytearray()
        self._read_piece(0, nbytes, found)
        return bytes(found)

    def read_into(self, into: bytearray, offset: int, nbytes: int) -> None:
        """Append a range inside the file to ``into``."""
        for start in range(offset, offset + nbytes, PIECE):
            self._read_piece(start, min(PIECE, offset + nbytes - start), into)

    def check_unchanged(self) -> None:
        """Ask for one byte, to see whether the file is still the one it was."""
        self._read_piece(0, min(1, self.size), bytearray())

    def _read_piece(self, start: int, nbytes: int, into: bytearray) -> None:
        """Go on where an answer broke, until everything is there or there were too many tries."""
        before = len(into)
        for tried in range(1, self._patience.tries + 1):
            done = len(into) - before
            try:
                self._ask(start + done, nbytes - done, into)
                return
            except _Broken as broken:
                if tried == self._patience.tries:
                    message = f"{broken.what}; tried {tried} times"
                    raise NetworkError(message, code=broken.code, path=self.location.shown) from broken.__cause__
                time.sleep(max(broken.wait, self._patience.pause * 2 ** (tried - 1)))

    def _ask(self, start: int, nbytes: int, into: bytearray) -> None:
        """One range, one answer. Raises _Broken for what another try may mend."""
        if self._known and nbytes == 0:
            return
        with self._answer(start, nbytes) as (url, response):
            wanted = self._check(response, url, start, nbytes)
            begun, came = time.monotonic(), 0
            for chunk in response.iter_raw():
                came += len(chunk)
                self.received += len(chunk)
                if came > wanted:
                    raise self._error("length", "the server sends more than it was asked for", wanted, came)
                into += chunk
                elapsed = time.monotonic() - begun
                if came < wanted and elapsed > self._patience.timeout and came < SLOWEST * elapsed:
                    raise _Broken("slow", f"the server sends less than {SLOWEST} bytes a second")
            if came < wanted:
                raise _Broken("short", f"the answer ended after {came} of {wanted} bytes")

    @contextmanager
    def _answer(self, start: int, nbytes: int) -> Iterator[tuple[str, Any]]:
        """The address that answered and its answer, whose body is still to come; redirects are followed before."""
        from huggingface_hub import get_session

        client = get_session()
        library = _library_of(client)
        response = None
        try:
            url, response = self._follow(client, f"bytes={start}-{start + nbytes - 1}")
            yield url, response
        except library.TimeoutException as error:
            raise _Broken("timeout", f"no answer for {self._patience.timeout:g} s") from error
        except library.TransportError as error:
            raise _Broken("connection", f"the connection failed ({error or type(error).__name__})") from error
        except library.InvalidURL as error:
            raise UsageError(f"not a URL: {error}", code="url", path=self.location.shown) from error
        finally:
            if response is not None:
                response.close()

    def _follow(self, client: Any, wanted: str) -> tuple[str, Any]:
        url = self._target
        for _ in range(MOST_REDIRECTS + 1):
            headers = {"Range": wanted, "Accept-Encoding": "identity"}
            if _origin(url) == _origin(self.location.url):
                headers |= self.location.headers
            request = client.build_request("GET", url, headers=headers, timeout=self._patience.timeout)
            self.requests += 1
            response = client.send(request, stream=True, follow_redirects=False)
            if response.status_code not in _REDIRECTS:
                self._target = url
                return url, response
            response.close()
            self._same(url, response.headers, ("x-linked-etag",))
            url = self._redirected(url, response.headers.get("location", ""))
        raise self._error("redirect", f"more than {MOST_REDIRECTS} redirects", None, None)

    def _redirected(self, url: str, where: str) -> str:
        target = urljoin(url, where)
        scheme = urlsplit(target).scheme
        if not where or f"{scheme}://" not in SCHEMES[:2]:
            raise self._error("redirect", "a redirect to nowhere", "an address", where or "none")
        if urlsplit(url).scheme == "https" and scheme == "http":
            raise self._error("redirect", "a redirect from https to http", "https", _origin(target))
        return target

    def _check(self, response: Any, url: str, start: int, nbytes: int) -> int:
        """How many bytes the body has to have."""
        status, headers = response.status_code, response.headers
        if status == 416:
            return self._check_beyond(headers, start)
        if status != 206:
            raise self._refusal(status, url, headers)
        match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
        if match is None:
            found = headers.get("content-range", "none")
            raise self._error("content_range", "the answer does not say which bytes it has", "bytes A-B/SIZE", found)
        first, last, size = map(int, match.groups())
        if self._known and size != self.size:
            raise self._changed(f"{self.size} bytes", f"{size} bytes")
        end = min(start + nbytes, size)
        if (first, last) != (start, end - 1):
            asked = f"bytes {start}-{end - 1}"
            raise self._error("content_range", "the answer has other bytes", asked, f"bytes {first}-{last}")
        if headers.get("content-encoding", "identity").lower() not in ("identity", ""):
            raise self._error("encoding", "the answer is encoded", "identity", headers["content-encoding"])
        length = headers.get("content-length", str(end - start))
        if length != str(end - start):
            raise self._error("length", "the answer has another length than its range", end - start, length)
        self._same(url, headers, ("etag", "last-modified"))
        self.size, self._known = size, True
        return end - start

    def _check_beyond(self, headers: Mapping[str, str], start: int) -> int:
        """No byte lies there: an empty file, when it was asked for the first one."""
        found = headers.get("content-range", "none")
        if self._known:
            raise self._changed(f"{self.size} bytes", found)
        if start or found != "bytes */0":
            raise self._error("content_range", "the server has no such bytes", "bytes */0", found)
        self._known = True
        return 0

    def _refusal(self, status: int, url: str, headers: Mapping[str, str]) -> Exception:
        """What a status means that brings no range: _Broken where another try may help."""
        said = f"; it says: {text[:200]}" if (text := headers.get("x-error-message")) else ""
        if status == 200:
            what = "the server does not send ranges of files; download the file first"
            return self._error("ranges", what, "status 206", f"status 200, {headers.get('content-length', '?')} bytes")
        if code := _REFUSED.get(status):
            if url != self.location.url and self._target == url and self._known:
                # Addresses that stores sign for a while, or for one range: the first address gives another one.
                self._target = self.location.url
                return _Broken(code, f"{_WORDS[code]} (status {status}){said}")
            return self._error(code, f"{_WORDS[code]}{said}", "status 206", f"status {status}")
        if status in (408, 429) or status >= 500:
            wait = _retry_after(headers.get("retry-after", ""))
            if wait <= MOST_WAIT:
                return _Broken("status", f"the server answers with status {status}{said}", wait)
            return self._error("status", f"the server asks to come back in {wait:.0f} s", "status 206", status)
        return self._error("status", f"the server answers with another status{said}", "status 206", f"status {status}")

    def _same(self, url: str, headers: Mapping[str, str], names: tuple[str, ...]) -> None:
        """Compare what names the version; each host of a file has its own names for it, the hub one for all."""
        name = next((name for name in names if headers.get(name)), None)
        if name is None:
            return
        known = self._identity.setdefault((_origin(url), name), headers[name])
        if known != headers[name]:
            raise self._changed(f"{name} {known}", headers[name])

    def _changed(self, expected: str, found: str) -> Changed:
        message = "the file on the server was replaced while it was read"
        return Changed(message, code="file", path=self.location.shown, expected=expected, found=found)

    def _error(self, code: str, message: str, expected: object, found: object) -> NetworkError:
        return NetworkError(message, code=code, path=self.location.shown, expected=expected, found=found)


class _Broken(Exception):
    """A transfer that another try may mend, after ``wait`` seconds at least."""

    def __init__(self, code: str, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.code, self.what, self.wait = code, what, wait


def _library_of(client: Any) -> Any:
    """The HTTP library of the client: httpx2 with huggingface-hub 2, httpx before it. Both have the same errors."""
    module = next(base.__module__ for base in type(client).__mro__ if base.__name__ == "Client")
    return import_module(module.partition(".")[0])


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _retry_after(value: str) -> float:
    """Seconds to wait, from seconds or a date; 0 where nothing was asked."""
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0

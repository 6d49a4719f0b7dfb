"""A real HTTP server on this machine that sends ranges of one file, and misbehaves when it is told to."""

from __future__ import annotations

import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

BLOCK = 1 << 16


@dataclass
class Answer:
    """What the server is about to send: bytes ``start`` to ``stop`` of the file, unless a fault changes it.

    ``flip`` is a byte of the body to damage, ``cut`` bytes of the body after which the connection ends, ``stall``
    seconds before the body, ``drip`` seconds before every single byte of it. Without ``measured`` there is no
    Content-Length: the body ends with the connection.
    """

    status: int
    headers: dict[str, str]
    start: int
    stop: int
    flip: int | None = None
    cut: int | None = None
    stall: float = 0.0
    drip: float = 0.0
    measured: bool = True


Fault = Callable[[Answer], None]


@dataclass
class Asked:
    """A request as it came."""

    path: str
    headers: dict[str, str] = field(repr=False)


class RangeServer:
    """Serves ``path`` under every address. ``faults`` change one answer each, in order; ``always`` every further one.

    ``asked`` are the requests, ``sent`` the bytes of bodies. A context manager.
    """

    def __init__(
        self,
        path: Path,
        faults: Iterable[Fault] = (),
        *,
        always: Fault | None = None,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        self.path = path
        self.faults = deque(faults)
        self.always = always
        self.etag = '"first"'
        self.asked: list[Asked] = []
        self.sent = 0
        self.stopping = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.host = f"{'https' if tls else 'http'}://127.0.0.1:{self._http.server_port}"
        self.url = f"{self.host}/{path.name}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def ranges(self) -> list[str]:
        """The ranges that were asked for."""
        return [asked.headers.get("range", "") for asked in self.asked]

    def close(self) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> RangeServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    owner: RangeServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        owner = self.server.owner
        owner.asked.append(Asked(self.path, {name.lower(): value for name, value in self.headers.items()}))
        answer = self._proper()
        fault = owner.faults.popleft() if owner.faults else owner.always
        if fault is not None:
            fault(answer)
        self.send_response(answer.status)
        if answer.measured:
            answer.headers.setdefault("Content-Length", str(answer.stop - answer.start))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._send_body(answer)

    def _proper(self) -> Answer:
        """RFC 9110: one range of the file, with the version it belongs to."""
        size = self.server.owner.path.stat().st_size
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1, size)
        if start >= stop:
            return Answer(416, {"Content-Range": f"bytes */{size}"}, 0, 0)
        headers = {"Content-Range": f"bytes {start}-{stop - 1}/{size}", "ETag": self.server.owner.etag}
        return Answer(206, headers, start, stop)

    def _send_body(self, answer: Answer) -> None:
        owner = self.server.owner
        if answer.stall and owner.stopping.wait(answer.stall):
            return
        step = 1 if answer.drip else BLOCK
        stop = answer.stop if answer.cut is None else answer.start + answer.cut
        with owner.path.open("rb") as stream:
            stream.seek(answer.start)
            for at in range(answer.start, stop, step):
                block = bytearray(stream.read(min(step, stop - at)))
                place = answer.start + (answer.flip or 0) - at
                if answer.flip is not None and 0 <= place < len(block):
                    block[place] ^= 0x10
                if answer.drip and owner.stopping.wait(answer.drip):
                    return
                owner.sent += len(block)  # before the client can have it
                self.wfile.write(block)
        if answer.cut is not None or not answer.measured:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def whole_file(answer: Answer) -> None:
    """A server that knows no ranges."""
    size = answer.headers.pop("Content-Range").rpartition("/")[2]
    answer.status, answer.start, answer.stop = 200, 0, int(size)


def status(code: int, **headers: str) -> Fault:
    """An answer without content."""

    def fault(answer: Answer) -> None:
        answer.status, answer.start, answer.stop = code, 0, 0
        answer.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    return fault


def redirect(url: str) -> Fault:
    return status(302, Location=url)


def cut(nbytes: int) -> Fault:
    """The connection ends after ``nbytes`` of the body."""

    def fault(answer: Answer) -> None:
        answer.cut = min(nbytes, answer.stop - answer.start)

    return fault


def flip(position: int) -> Fault:
    """A byte of the body is damaged on its way."""

    def fault(answer: Answer) -> None:
        answer.flip = position

    return fault


def stall(seconds: float) -> Fault:
    def fault(answer: Answer) -> None:
        answer.stall = seconds

    return fault


def drip(seconds: float) -> Fault:
    def fault(answer: Answer) -> None:
        answer.drip = seconds

    return fault


def header(name: str, value: str | None) -> Fault:
    """Another header than the right one, or none."""

    def fault(answer: Answer) -> None:
        answer.headers.pop(name, None)
        if value is not None:
            answer.headers[name] = value

    return fault


def proper(answer: Answer) -> None:
    """No fault."""

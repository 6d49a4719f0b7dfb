"""K: paths, and what the operating system does with files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

from builders.cmf import Cmf
from hostile.row import Case, Row, Sparse

TERA = 1 << 40


def at(make: Callable[[Path], object], name: str = "other") -> Case:
    """Opened under another path, which ``make`` is given."""

    def place(path: Path) -> Path:
        made = path.with_name(name)
        make(made)
        return made

    return Case(place=place)


def existing(name: str, **more) -> Case:
    return Case(place=lambda path: Path(name), **more)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # an absolute path may be too long for a socket


def link(name: str, target: str | None = None, make: Callable[[Path], object] = lambda path: None) -> Case:
    """A symbolic link to the file, or to something ``make`` makes."""

    def place(path: Path) -> Path:
        goal = path if target is None else path.with_name(target)
        make(goal)
        path.with_name(name).symlink_to(goal)
        return path.with_name(name)

    return Case(place=place)


def renamed(name: str | bytes) -> Case:
    """The file under another name."""

    def place(path: Path) -> Path:
        return path.rename(path.parent / (name if isinstance(name, str) else os.fsdecode(name)))

    return Case(place=place)


def unreadable(path: Path) -> Path:
    path.chmod(0)
    return path


def for_root() -> str | None:
    return "root may read every file" if os.geteuid() == 0 else None


def saved_to(target: Callable[[Path], Path], **more) -> Case:
    """The file is open as ``source.cmf`` while it is written to the path ``target`` makes of the folder."""

    def place(path: Path) -> Path:
        path.rename(path.with_name("source.cmf"))
        return target(path.parent)

    return Case(place=place, **more)


def into_folder(folder: Path) -> Path:
    (folder / "there").mkdir()
    return folder / "there"


def over_link(folder: Path) -> Path:
    (folder / "kept").write_bytes(b"kept")
    (folder / "link.cmf").symlink_to("kept")
    return folder / "link.cmf"


def replaced_the_link(file) -> bool:
    return not file.path.is_symlink() and file.path.with_name("kept").read_bytes() == b"kept"


def also_named(path: Path) -> Path:
    path.with_name("hard.cmf").hardlink_to(path)
    return path


def rewritten(path: Path) -> None:
    """Its last byte written again, through another name of the same file."""
    other = path.with_name("hard.cmf")
    if not other.exists():
        other.hardlink_to(path)
    with other.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"!")
    os.utime(other, ns=(1, 1))


def vast(cmf: Cmf) -> Sparse:
    """One TiB, of which all but the head is a hole."""
    made = cmf.with_tensors(masks=b"", vocab=b"", index=b"")
    return Sparse(made.set("data_len", TERA - made.get("data_off")), TERA)


NOT_REGULAR = "O UsageError.not_regular"

ROWS = (
    Row(
        "K1",
        "what is no regular file",
        [
            at(lambda path: path.mkdir()),
            at(lambda path: os.mkfifo(path)),
            *(existing(name) for name in ("/dev/zero", "/dev/null")),
            Case(place=at(listening).place, raw="O OSError"),
            existing("/proc/self/mem", raw="O OSError"),
            existing("/proc/self/status", raw="O InvalidMagic.magic"),
        ],
        raw=NOT_REGULAR,
    ),
    Row(
        "K2",
        "symbolic links",
        [
            link("link.cmf"),
            Case(place=link("link.cmf", "nothing").place, raw="O FileNotFoundError"),
            Case(place=link("link.cmf", "link.cmf").place, raw="O OSError"),
            Case(place=link("link.cmf", "pipe", os.mkfifo).place, raw=NOT_REGULAR),
        ],
        raw="O ok",
    ),
    Row(
        "K3",
        "odd paths",
        [
            *(renamed(name) for name in ("with spaces .cmf", "模型\u0301.cmf", "a\nb\x1b[31m.cmf", "-x.cmf")),
            renamed(b"\xff\xfe.cmf"),
            Case(lambda cmf: b"not a model", renamed("a\nb\x1b[31m.cmf").place, raw="O InvalidMagic.magic"),
            Case(lambda cmf: b"not a model", renamed(b"\xff\xfe.cmf").place, raw="O InvalidMagic.magic"),
            Case(place=lambda path: path.with_name("x" * 4096), raw="O OSError"),
        ],
        raw="O ok",
    ),
    Row(
        "K4",
        "no permission, no memory map",
        [Case(place=unreadable, skip=for_root)],
        raw="O PermissionError",
        later="reading without a memory map",
    ),
    Row("K5", "truncated, grown or rewritten while a model runs", later="held by the tests of the mapping"),
    Row(
        "K6",
        "a sparse file of one TiB",
        [Case(vast, holds=lambda file: file.envelope.data.nbytes > TERA - 10**6)],
        raw="O ok",
        later="interrupting its verification",
    ),
    Row("K7", "saving a file over itself while it is mapped", [saved_to(lambda f: f / "source.cmf")], raw="W ok"),
    Row(
        "K8",
        "output paths",
        [
            saved_to(lambda folder: folder / "new.cmf"),
            saved_to(over_link, holds=replaced_the_link),
            saved_to(into_folder, raw="W IsADirectoryError"),
            saved_to(lambda folder: folder / "none" / "x.cmf", raw="W FileNotFoundError"),
            saved_to(lambda folder: folder / "source.cmf" / "x.cmf", raw="W NotADirectoryError"),
        ],
        raw="W ok",
        later="no space and read-only file systems, with the tests of crashes",
    ),
    Row(
        "K9",
        "growing a file through a link, or one that has other names",
        [
            Case(place=link("link.cmf").place, raw="A UsageError.symlink"),
            Case(place=also_named, raw="A UsageError.links"),
            Case(),
        ],
        raw="A ok",
        needs="growth",
    ),
    Row(
        "K10",
        "a file edited while it is verified",
        [Case(during=rewritten)],
        raw=("O ok", "V raises Changed.file"),
    ),
)

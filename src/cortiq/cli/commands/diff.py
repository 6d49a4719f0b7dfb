"""``cortiq diff``: what changes from one file to another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console, human_bytes
from cortiq.cli.params import Command, json_option, option, pass_console
from cortiq.errors import printable

if TYPE_CHECKING:
    from cortiq.container import File, TensorEntry
    from cortiq.edit.diff import Diff, TensorChange

DIFFERS = 5
SHOWN = 20
MAX_DIGITS = 10
EPILOG = """
cortiq diff old.cmf new.cmf
cortiq diff model.cmf@1 model.cmf
cortiq diff a.cmf b.cmf --json | jq .tensors.changed
cortiq diff model.cmf https://example.org/model.cmf
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("before")
@click.argument("after")
@option("--values/--no-values", default=None, help="Decode tensors that differ and compare their values, or not.")
@option("--all", "everything", is_flag=True, help=f"List everything, not the first {SHOWN} of a kind.")
@json_option
@pass_console
def diff(console: Console, before: str, after: str, values: bool | None, everything: bool, as_json: bool) -> int:
    """Show what changes from the .cmf file BEFORE to the file AFTER.

    FILE@2 is version 2 of a file, by the numbers of `cortiq log`. Compared are arch and header,
    sections, and tensors by their digests or hashes, and by value where both files are on this
    machine. Exit code 0 when nothing differs, 5 when something does.
    """
    from cortiq.container.location import is_url
    from cortiq.edit.diff import diff as compare

    if values is None:
        values = not (is_url(before) or is_url(after))
    with (
        _opened(before) as a,
        _opened(after) as b,
        console.progress("comparing") as progress,
    ):
        found = compare(a, b, values=values, progress=progress.update)
    if as_json:
        console.json({"before": before, "after": after, **_document(found)})
    else:
        for line in _lines(found, None if everything else SHOWN):
            console.line(line)
    return 0 if found.equal else DIFFERS


def _opened(name: str) -> File:
    """A file, or one of its versions. A path that exists means what it says."""
    from cortiq.cli.models import existing_file, readable_file
    from cortiq.container import open as open_file
    from cortiq.container.location import is_url
    from cortiq.edit.history import open_version

    model, _, number = name.rpartition("@")
    if (
        is_url(name)
        or not (model and number.isdecimal() and len(number) < MAX_DIGITS)
        or Path(name).expanduser().exists()
    ):
        return open_file(readable_file(name))
    return open_version(existing_file(model), int(number))


def _document(found: Diff) -> dict[str, Any]:
    return {
        "equal": found.equal,
        "identity": found.identity,
        "fields": [{"path": c.path, "before": c.before, "after": c.after} for c in found.fields],
        "sections": list(found.sections),
        "tensors": {
            "same": found.same,
            "added": [_entry(entry) for entry in found.added],
            "removed": [_entry(entry) for entry in found.removed],
            "changed": [
                {
                    "name": c.after.name,
                    "before": _entry(c.before),
                    "after": _entry(c.after),
                    "relative_error": _number(c.relative),
                    "largest_error": _number(c.largest),
                }
                for c in found.changed
            ],
        },
    }


def _number(value: float | None) -> float | str | None:
    """JSON has no infinities and no NaN; they become their names."""
    return value if value is None or abs(value) < float("inf") else str(value)


def _entry(entry: TensorEntry) -> dict[str, Any]:
    from cortiq.layouts import DTYPE_NAMES

    return {
        "name": entry.name,
        "dtype": DTYPE_NAMES[entry.dtype],
        "shape": list(entry.shape),
        "bytes": entry.nbytes,
        "hash": f"{entry.hash:016x}",
    }


def _lines(found: Diff, limit: int | None) -> Iterator[str]:
    fields = [f"  {printable(c.path)}: {_value(c.before)} -> {_value(c.after)}" for c in found.fields]
    yield from _group("header: no difference", f"header: {len(fields)} fields differ", fields, limit)
    if found.sections:
        yield f"sections that differ: {', '.join(found.sections)}"
    counts = f"{len(found.changed)} changed, {len(found.added)} added, {len(found.removed)} removed"
    yield f"tensors: {found.same} the same by {found.identity}, {counts}"
    yield from _group("", "", [f"  ~ {_change(change)}" for change in found.changed], limit)
    yield from _group("", "", [f"  + {_described(entry)}" for entry in found.added], limit)
    yield from _group("", "", [f"  - {_described(entry)}" for entry in found.removed], limit)
    if found.identity == "hash64":
        yield "compared by hash64, which does not see words that changed places: not both files carry digests"
    yield "no difference" if found.equal else "the files differ"


def _group(none: str, head: str, lines: list[str], limit: int | None) -> Iterator[str]:
    title = head if lines else none
    if title:
        yield title
    yield from lines[:limit]
    if limit is not None and len(lines) > limit:
        yield f"  and {len(lines) - limit} more; --all lists them"


def _value(value: Any) -> str:
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 60 else f"{text[:60]} ..."


def _described(entry: TensorEntry) -> str:
    return f"{printable(entry.name)}  {_kind(entry)}, {human_bytes(entry.nbytes)}"


def _kind(entry: TensorEntry) -> str:
    from cortiq.layouts import DTYPE_NAMES

    return f"{DTYPE_NAMES[entry.dtype]} {'x'.join(map(str, entry.shape)) or 'scalar'}"


def _change(change: TensorChange) -> str:
    kinds = _kind(change.after) if change.same_kind else f"{_kind(change.before)} -> {_kind(change.after)}"
    if change.relative is None or change.largest is None:
        return f"{printable(change.after.name)}  {kinds}"
    return (
        f"{printable(change.after.name)}  {kinds}, relative error {change.relative:.3g}, largest {change.largest:.3g}"
    )

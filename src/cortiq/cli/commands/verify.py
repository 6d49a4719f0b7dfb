"""``cortiq verify``: every hash of a file, at memory speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console, human_bytes
from cortiq.cli.params import Command, json_option, option, pass_console
from cortiq.errors import CortiqError, VerificationError, printable

if TYPE_CHECKING:
    from cortiq.container import File, Report

EPILOG = """
cortiq verify model.cmf
cortiq verify model.cmf --strict --json
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@option("--strict", is_flag=True, help="What is odd but allowed is a failure too.")
@option("--require-hashes", is_flag=True, help="A section or tensor without a hash is a failure too.")
@option("-t", "--threads", type=click.IntRange(1, 1024), help="Threads that read and hash.")
@json_option
@pass_console
def verify(console: Console, model: str, as_json: bool, **given: Any) -> int:
    """Check every hash, and the content of every tensor, of the .cmf file MODEL.

    Exit code 4 when something differs from its hash, 3 when the content is not valid.
    """
    from cortiq.cli.models import existing_file
    from cortiq.container import open_single
    from cortiq.container import verify as verify_file

    with open_single(existing_file(model)) as file:
        with console.progress("verifying") as progress:
            report = verify_file(file, progress=progress.update, **given)
        if as_json:
            console.json({"path": str(file.path), "ok": report.ok, **_document(report)})
        else:
            _print(console, file, report)
        return _exit_code(report)


def _exit_code(report: Report) -> int:
    if report.ok:
        return 0
    worst = next((p for p in report.problems if isinstance(p, VerificationError)), report.problems[0])
    return worst.exit_code


def _document(report: Report) -> dict[str, Any]:
    return {
        "checked": report.checked,
        "unhashed": list(report.unhashed),
        "problems": [_record(p) for p in report.problems],
        "warnings": [_record(w) for w in report.warnings],
        "bytes": report.bytes,
        "padding_bytes": report.padding,
        "dead_bytes": report.dead,
        "seconds": report.seconds,
        "bytes_per_second": report.bytes / max(report.seconds, 1e-9),
    }


def _record(error: CortiqError) -> dict[str, Any]:
    found = {name: getattr(error, name) for name in ("section", "tensor", "offset", "expected", "found")}
    facts = {name: value if isinstance(value, int | None) else str(value) for name, value in found.items()}
    return {"kind": error.kind, "message": error.message, **facts}


def _print(console: Console, file: File, report: Report) -> None:
    for error in report.warnings:
        console.line(f"{console.paint('warning', 'yellow')}  {error}")
    for error in report.problems:
        console.line(f"{console.paint('problem', 'red')}  {error}")
    rate = report.bytes / max(report.seconds, 1e-9)
    console.line(
        f"{printable(str(file.path))}: {report.checked} hashes compared, {human_bytes(report.bytes)} "
        f"in {report.seconds:.2f} s ({rate / 1e9:.1f} GB/s)"
    )
    if report.unhashed:
        names = ", ".join(printable(name) for name in report.unhashed[:5])
        rest = f" and {len(report.unhashed) - 5} more" if len(report.unhashed) > 5 else ""
        console.line(f"{console.paint('unhashed', 'yellow')}: {names}{rest}; nothing is known about these")
    if report.dead:
        console.line(f"{human_bytes(report.dead)} belong to nothing")
    verdict = ("ok", "green") if report.ok else (f"{len(report.problems)} problems", "red")
    console.line(console.paint(*verdict))

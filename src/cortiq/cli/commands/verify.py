"""``cortiq verify``: what a file says of itself against its bytes, in three levels, and who signed it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console, human_bytes
from cortiq.cli.params import Command, alone_option, json_option, option, pass_console
from cortiq.errors import CortiqError, Shard, Signature, UsageError, VerificationError, printable

if TYPE_CHECKING:
    from cortiq.container import Check, File, Report
    from cortiq.container.signature import Signer
    from cortiq.container.signing_keys import PublicKey

EPILOG = """
cortiq verify model.cmf
cortiq verify model.cmf --quick
cortiq verify hf://org/repository/model.cmf --quick
cortiq verify model.cmf --deep --values --strict --json
cortiq verify model.cmf --pubkey maker.pub
"""


@dataclass(frozen=True, slots=True)
class _Options:
    alone: bool
    quick: bool
    deep: bool
    values: bool
    strict: bool
    require_hashes: bool
    threads: int | None
    pubkey: tuple[str, ...]
    trusted_keys: str | None
    require_trusted: bool


@dataclass(frozen=True, slots=True)
class _Signed:
    """``present`` says that there is a signature; ``signer`` is who made it, None when it was not or badly checked."""

    present: bool
    signer: Signer | None = None
    error: Signature | None = None


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@option("--quick", is_flag=True, group="Level", help="Envelope, header and directory only.")
@option("--deep", is_flag=True, group="Level", help="Also load tokenizer and template, in a process with limits.")
@option("--values", is_flag=True, group="Level", help="Deep, and report weights that are not finite.")
@alone_option
@option("--strict", is_flag=True, help="What is odd but allowed is a failure too.")
@option("--require-hashes", is_flag=True, help="A section without a hash is a failure too.")
@option("-t", "--threads", type=click.IntRange(1, 1024), help="Threads that read and hash.")
@option("--pubkey", multiple=True, group="Signature", help="Demand a signature by this key (or file of a key).")
@option("--trusted-keys", group="Signature", help="File of keys to trust, one a line.")
@option("--require-trusted", is_flag=True, group="Signature", help="Demand a signature by a trusted key.")
@json_option
@pass_console
def verify(console: Console, model: str, as_json: bool, **given: Any) -> int:
    """Check every hash and digest of the .cmf file MODEL, the content of every tensor, and its signature.

    The first file of a set stands for the set: all its files are checked. Any other is checked alone, and so is the
    first when others are missing, with a warning. Of a file at a URL only the head: --quick.

    Exit code 4 when something differs from its hash or the signature is bad, 3 when the content is not valid.
    """
    from cortiq.cli.models import readable_file
    from cortiq.container.location import check_local

    options = _Options(**given)
    if options.quick and (options.deep or options.values or _demands(options)):
        raise UsageError("--quick reads too little for the other levels and for signatures", code="level")
    if not options.quick:
        check_local(model, "verifying without --quick")
    keys = _keys(options)
    opened, broken = _opened(readable_file(model), options.alone)
    with opened as file:
        report = _with(_verify(console, file, options), broken, strict=options.strict)
        signed = {part: _signature(console, part, options, keys) for part in file.parts or (file,)}
        problems = [*report.problems, *(found.error for found in signed.values() if found.error)]
        if as_json:
            facts = {"path": str(file.path), "ok": not problems, **_document(report, problems)}
            console.json({**facts, **_signatures_document(signed)})
        else:
            for line in _lines(console, file, report, problems):
                console.line(line)
            for line in _signature_lines(signed):
                console.line(line)
            verdict = ("ok", "green") if not problems else (f"{len(problems)} problems", "red")
            console.line(console.paint(*verdict))
    return _exit_code(problems)


def _opened(path: Path | str, alone: bool) -> tuple[File, CortiqError | None]:
    """The file at ``path``, or the set it is the first file of.

    Without its set it is verified all the same (SPEC 10): the error is why the files do not make a set.
    """
    from cortiq.container import open_single
    from cortiq.container.location import is_url
    from cortiq.container.shards import open_set

    file = open_single(path)
    shard = file.header.shard
    if alone or is_url(path) or shard is None or shard.no > 1 or shard.count == 1:
        return file, None
    try:
        return open_set(file), None
    except CortiqError as error:
        if isinstance(error, Shard) or error.kind == "Parse.name_dup":
            return open_single(path), error
        raise


def _verify(console: Console, file: File, options: _Options) -> Report:
    from cortiq.container import verify as verify_file

    checks: list[Check] = []
    if options.deep or options.values:
        from cortiq.edit.deep import check_text

        checks.append(check_text)
    if options.values:
        from cortiq.container.values import check_values

        checks.append(check_values)
    with console.progress("verifying") as progress:
        return verify_file(
            file,
            level="quick" if options.quick else "full",
            threads=options.threads,
            progress=progress.update,
            strict=options.strict,
            require_hashes=options.require_hashes,
            checks=checks,
        )


def _with(report: Report, broken: CortiqError | None, *, strict: bool) -> Report:
    """``report`` of one file, and why it makes no set with the others."""
    if broken is None:
        return report
    if strict:
        return replace(report, problems=(*report.problems, broken))
    return replace(report, warnings=(broken, *report.warnings))


def _demands(options: _Options) -> bool:
    return bool(options.pubkey or options.require_trusted)


def _keys(options: _Options) -> tuple[PublicKey, ...]:
    """The keys to trust: those given, else the file ``trusted_keys`` in CORTIQ_HOME where trust is demanded."""
    from cortiq.container.signing_keys import parse_public_key, read_trusted_keys

    keys = tuple(parse_public_key(text) for text in options.pubkey)
    if options.trusted_keys is not None:
        return keys + read_trusted_keys(options.trusted_keys)
    if options.require_trusted and not keys:
        from cortiq.settings import Settings

        path = Settings.load().home / "trusted_keys"
        return read_trusted_keys(path) if path.exists() else ()
    return keys


def _signature(console: Console, file: File, options: _Options, keys: tuple[PublicKey, ...]) -> _Signed:
    from cortiq.container.location import is_url
    from cortiq.container.signature import check_signature, signature_path

    present = not is_url(file.path) and os.path.lexists(signature_path(file.path))
    if options.quick or not (present or _demands(options)):
        return _Signed(present)
    try:
        with console.progress("checking the signature") as progress:
            signer = check_signature(file, trusted=keys, required=_demands(options), progress=progress.update)
    except Signature as error:
        return _Signed(present, error=error)
    return _Signed(present, signer)


def _exit_code(problems: list[CortiqError]) -> int:
    if not problems:
        return 0
    worst = next((p for p in problems if isinstance(p, VerificationError)), problems[0])
    return worst.exit_code


def _document(report: Report, problems: list[CortiqError]) -> dict[str, Any]:
    return {
        "level": report.level,
        "files": report.files,
        "checked": report.checked,
        "digests": None if report.digests is None else {"alg": "sha256", "checked": report.digests},
        "unhashed": list(report.unhashed),
        "problems": [_record(p) for p in problems],
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


def _signatures_document(signed: dict[File, _Signed]) -> dict[str, Any]:
    """``signature`` of a file, ``signatures`` by path of a set."""
    made = {str(file.path): _signature_document(found) for file, found in signed.items()}
    return {"signatures": made} if len(made) > 1 else {"signature": next(iter(made.values()))}


def _signature_document(signed: _Signed) -> dict[str, Any] | None:
    if not signed.present:
        return None
    if signed.signer is None:
        return {"checked": signed.error is not None, "valid": False if signed.error else None}
    key = signed.signer.key
    names = {"pubkey": key.hex, "fingerprint": key.fingerprint, "name": key.name or None}
    return {"checked": True, "valid": True, "trusted": signed.signer.trusted, **names}


def _lines(console: Console, file: File, report: Report, problems: list[CortiqError]) -> Iterator[str]:
    for error in report.warnings:
        yield f"{console.paint('warning', 'yellow')}  {error}"
    for error in problems:
        yield f"{console.paint('problem', 'red')}  {error}"
    rate = report.bytes / max(report.seconds, 1e-9)
    yield (
        f"{printable(str(file.path))}: level {report.level}, {report.checked} hashes compared, "
        f"{human_bytes(report.bytes)} in {report.seconds:.2f} s ({rate / 1e9:.1f} GB/s)"
    )
    shard = file.header.shard
    if report.files > 1:
        yield f"{report.files} files, which belong together"
    elif shard is not None and shard.count > 1:
        yield f"file {shard.no} of a set of {shard.count}: the others were not looked at"
    if report.level == "quick":
        yield "no tensor was read; without --quick all are"
    elif report.digests is None:
        yield "no SHA-256 digests: hash64 alone does not see words and blocks that changed places"
    else:
        yield f"{report.digests} SHA-256 digests compared"
    if report.unhashed:
        names = ", ".join(printable(name) for name in report.unhashed[:5])
        rest = f" and {len(report.unhashed) - 5} more" if len(report.unhashed) > 5 else ""
        yield f"{console.paint('unhashed', 'yellow')}: {names}{rest}; nothing is known about these"
    if report.dead:
        yield f"{human_bytes(report.dead)} belong to nothing"


def _signature_lines(signed: dict[File, _Signed]) -> Iterator[str]:
    from cortiq.container.location import is_url

    if any(is_url(file.path) for file in signed):
        yield "whether it is signed was not asked"
        return
    if not any(found.present for found in signed.values()):
        yield "not signed"
        return
    for file, found in signed.items():
        yield (f"{printable(file.name)}: " if len(signed) > 1 else "") + _signature_line(file, found)


def _signature_line(file: File, signed: _Signed) -> str:
    if signed.signer is None:
        if not signed.present:
            return "not signed"
        return "the signature is bad" if signed.error else "there is a signature, not checked"
    key = signed.signer.key
    known = f"a trusted key{f', {key.name}' if key.name else ''}," if signed.signer.trusted else "an unpinned key"
    real = os.path.realpath(file.path)
    of = f", for {file.path} which is {real}" if os.path.islink(file.path) else ""
    return printable(f"signed by {known} {key.fingerprint} ({signed.signer.path}{of})")

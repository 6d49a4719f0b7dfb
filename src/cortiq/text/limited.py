"""Loads a tokenizer and a chat template in a process of its own, with limits, to see whether they can be used.

Both are programs a file brings along. A hostile one may run for ever, eat the memory or end its process; here it ends
the child. ``python -m cortiq.text.limited`` is the child: a JSON line and the bytes of ``tokenizer.json`` on standard
input, lines of JSON on standard output.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cortiq import errors
from cortiq.errors import CortiqError
from cortiq.errors import Template as TemplateError
from cortiq.errors import Tokenizer as TokenizerError

CPU_SECONDS = 30
ADDRESS_BYTES = 4 << 30
OPEN_FILES = 64
DEADLINE = 60.0  # seconds of wall time, then SIGKILL
MAX_MESSAGE = 1000  # characters of an error, which may quote the file
PROBES = ("Hello, world.", "  def f(x):\n\treturn x ** 2\n", "Grüße, 你好, здравствуй 🙂", "<|im_start|> </s> [INST]")
_STEPS: Mapping[str, type[CortiqError]] = {"tokenizer": TokenizerError, "template": TemplateError}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the child may use: seconds of processor time, bytes of address space, open files, seconds of wall time."""

    cpu: int = CPU_SECONDS
    address: int = ADDRESS_BYTES
    files: int = OPEN_FILES
    deadline: float = DEADLINE


@dataclass(frozen=True, slots=True)
class Subject:
    """What to load. ``vocab_size`` is the number of rows of the embedding; the special tokens are ids or None."""

    template: str | None
    vocab_size: int
    bos: int | None = None
    eos: int | None = None


def try_text(
    tokenizer_json: bytes, subject: Subject, limits: Limits | None = None, command: Sequence[str] = ()
) -> list[CortiqError]:
    """What is wrong with a tokenizer and the template of ``subject``, empty when both work.

    ``tokenizer_json`` may be empty: then only the template is looked at.
    The tokenizer is loaded, compared with the vocabulary and made to encode and decode; the template is compiled and
    rendered. Errors are errors.Tokenizer and errors.Template; one with code ``limit`` stands for a child that was
    stopped or died. ``command`` replaces the child's command line.
    """
    limits = limits or Limits()
    head = json.dumps({"subject": asdict(subject), "limits": asdict(limits)}).encode() + b"\n"
    child = subprocess.Popen(
        list(command) or [sys.executable, "-P", "-m", "cortiq.text.limited"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(head + tokenizer_json, timeout=limits.deadline)
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate()
        return [*_found(output), _ended(output, f"it takes longer than {limits.deadline:g} seconds")]
    if child.returncode != 0:
        return [*_found(output), _ended(output, f"it ended its process with status {child.returncode}")]
    return _found(output)


def _lines(output: bytes) -> list[dict[str, Any]]:
    """The whole lines a child wrote; one that was cut off by its end is left out."""
    return [json.loads(line) for line in output.split(b"\n")[:-1]]


def _found(output: bytes) -> list[CortiqError]:
    found = []
    for line in _lines(output):
        if "kind" in line:
            kind: type[CortiqError] = getattr(errors, line["kind"])
            found.append(kind(line["message"], code=line["code"]))
    return found


def _ended(output: bytes, why: str) -> CortiqError:
    """The error of a child that did not come to its end: of the step it began last."""
    begun = [line["step"] for line in _lines(output) if "step" in line]
    step = begun[-1] if begun else "tokenizer"
    return _STEPS[step](f"the {step} was stopped: {why}", code="limit")


def _child() -> None:
    """Read what to load, limit this process, load. What a library prints is not taken for a result."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    head = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read()
    limits = Limits(**head["limits"])
    _limit(resource.RLIMIT_CPU, limits.cpu)
    _limit(resource.RLIMIT_AS, limits.address)
    _limit(resource.RLIMIT_NOFILE, limits.files)
    _limit(resource.RLIMIT_CORE, 0)
    for line in _load(data, Subject(**head["subject"])):
        results.write(json.dumps(line) + "\n")
        results.flush()


def _limit(what: int, value: int) -> None:
    """Lower a limit of this process; one that is lower already stays."""
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _load(data: bytes, subject: Subject) -> Iterator[dict[str, str]]:
    from cortiq.text.chat_template import ChatTemplate
    from cortiq.text.tokenizer import Tokenizer

    bos = eos = None
    yield {"step": "tokenizer"}
    try:
        if data:
            tokenizer = Tokenizer(data)
            if tokenizer.max_id not in tokenizer.added_ids:
                tokenizer.check_ids(subject.vocab_size)
            for text in PROBES:
                tokenizer.decode(tokenizer.encode(text))
            bos, eos = (None if i is None else tokenizer.id_to_token(i) for i in (subject.bos, subject.eos))
    except CortiqError as error:
        yield _record(error)
    yield {"step": "template"}
    try:
        template = ChatTemplate(subject.template, bos, eos)
        template.render([{"role": "user", "content": PROBES[0]}])
    except TemplateError as error:
        if error.code != "raised":  # a template may refuse a chat that is not to its liking
            yield _record(error)


def _record(error: CortiqError) -> dict[str, str]:
    return {"kind": type(error).__name__, "code": error.code, "message": error.message[:MAX_MESSAGE]}


if __name__ == "__main__":
    _child()

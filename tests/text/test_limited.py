"""Loading a tokenizer and a template in a process with limits: what works, what fails, what is stopped."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from cortiq.text.limited import Limits, Subject, try_text

DATA = Path(__file__).parents[1] / "data"
PLAIN = Subject("{% for m in messages %}{{ m.content }}{% endfor %}", vocab_size=1000)


def tokenizer(**changes: object) -> bytes:
    vocab = {chr(97 + i): i for i in range(26)} | {"<unk>": 26}
    made = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
        **changes,
    }
    return json.dumps(made).encode()


def kinds(data: bytes, subject: Subject = PLAIN, **options: object) -> list[str]:
    return [error.kind for error in try_text(data, subject, **options)]


def test_what_works() -> None:
    assert kinds(tokenizer()) == []
    assert kinds(tokenizer(), Subject(None, 1000, bos=1, eos=26)) == []


def test_a_template_without_a_tokenizer() -> None:
    assert kinds(b"") == []
    assert kinds(b"", Subject("{{ messages.x.y }}", 10)) == ["Template.render"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{}", "Tokenizer.parse"),
        (b"\x89PNG\r\n\x1a\n", "Tokenizer.parse"),
        (tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "Tokenizer.parse"),
        (
            tokenizer(
                normalizer={
                    "type": "Sequence",
                    "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 24,
                }
            ),
            "Tokenizer.expand",
        ),
    ],
    ids=["object", "binary", "charsmap", "growing"],
)
def test_bad_tokenizers(data: bytes, code: str) -> None:
    assert kinds(data) == [code]


def test_ids_beyond_the_embedding() -> None:
    assert kinds(tokenizer(), Subject(PLAIN.template, vocab_size=20)) == ["Tokenizer.ids"]


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("{% if %}", ["Template.syntax"]),
        ("{{ messages.nothing.more }}", ["Template.render"]),
        ("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}", ["Template.limit"]),
        ("{{ raise_exception('no chats here') }}", []),
    ],
    ids=["syntax", "render", "bomb", "refuses"],
)
def test_templates(template: str, found: list[str]) -> None:
    assert kinds(tokenizer(), Subject(template, 1000)) == found


CHILD = """
import json, sys, time
sys.stdin.buffer.read()
print(json.dumps({"step": "tokenizer"}), flush=True)
print(json.dumps({"kind": "Tokenizer", "code": "ids", "message": "m"}), flush=True)
print(json.dumps({"step": "template"}), flush=True)
sys.stdout.write('{"kind": "Temp')
sys.stdout.flush()
"""


@pytest.mark.parametrize("end", ["import os; os.abort()", "sys.exit(3)", "time.sleep(600)"])
def test_a_child_that_dies_or_hangs_is_the_error_of_its_step(end: str) -> None:
    start = time.monotonic()
    command = [sys.executable, "-c", CHILD + end]
    assert kinds(tokenizer(), limits=Limits(deadline=2.0), command=command) == ["Tokenizer.ids", "Template.limit"]
    assert time.monotonic() - start < 30


def test_memory_is_limited() -> None:
    """A process that may not have the memory to load the library fails by itself; it does not take this one along."""
    assert kinds(tokenizer(), limits=Limits(address=1 << 24)) == ["Tokenizer.limit"]


def test_processor_time_is_limited() -> None:
    slow = "{% for a in range(1400) %}{% for b in range(1000) %}{{ a * b }}{% endfor %}{% endfor %}"
    assert kinds(tokenizer(), Subject(slow, 1000), limits=Limits(cpu=1)) == ["Template.limit"]

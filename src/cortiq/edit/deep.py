"""The check of a file's tokenizer and chat template that ``cortiq verify --deep`` adds (SPEC 6, 6.1)."""

from __future__ import annotations

from collections.abc import Iterator

from cortiq.container import File, Finding
from cortiq.errors import CortiqError
from cortiq.errors import Tokenizer as TokenizerError
from cortiq.text.limited import Subject, try_text


def check_text(file: File) -> Iterator[Finding]:
    """Loads both in a process of its own, which a hostile section may hang or end without harm.

    Problems are errors.Tokenizer and errors.Template. A file with neither has nothing to check.
    """
    chat = file.header.chat
    template = None if chat is None else chat.chat_template
    try:
        tokenizer = file.tokenizer_json
    except CortiqError as error:
        yield Finding(error)
        return
    if tokenizer is None and template is None:
        return
    subject = Subject(
        template,
        file.arch.vocab_size,
        bos=None if chat is None else chat.bos_token_id,
        eos=chat.eos_token_ids[0] if chat and chat.eos_token_ids else None,
    )
    for found in try_text(tokenizer or b"", subject):
        found.section = "vocab" if isinstance(found, TokenizerError) else "header"
        yield Finding(found)

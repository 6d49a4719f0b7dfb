"""Chat settings of a source in the header's terms: template, stop ids, sampling defaults (SPEC 6.1).

The header's ``tokenizer_config`` holds ``chat_template``, ``eos_token_ids``, ``bos_token_id``, ``pad_token_id`` and,
additively, the texts ``bos_token`` and ``eos_token`` that a template may name. A model stops at the union of the
end-of-text ids its files name and the token its template ends a turn with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeGuard

from cortiq.convert.fields import JSON
from cortiq.convert.json_file import optional_json
from cortiq.errors import SourceError

TURN_ENDS = frozenset(
    ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|end_of_turn|>", "<|endoftext|>",
     "<|end_of_text|>", "<EOT>", "<end_of_utterance>", "<turn|>", "<｜end▁of▁sentence｜>")
)  # fmt: skip
"""Tokens that end a turn in every model that has them as special tokens."""
_SAMPLING = (
    "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip
_GGUF_SAMPLING = {
    "temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty",
}  # fmt: skip


def chat_of_huggingface(
    folder: Path, config: JSON, tokenizer_json: bytes | None
) -> tuple[dict[str, object], list[str]]:
    """The header's ``tokenizer_config`` of the checkpoint in ``folder``, and notes for the receipt.

    Raises SourceError for files that cannot be read.
    """
    settings = optional_json(folder / "tokenizer_config.json")
    generation = optional_json(folder / "generation_config.json")
    notes: list[str] = []
    template = _template(folder, settings, notes)
    ids = _token_ids(tokenizer_json)
    eos, bos, pad = (_token_text(settings.get(f"{name}_token")) for name in ("eos", "bos", "pad"))
    text_config = config.get("text_config")
    inner = text_config if isinstance(text_config, Mapping) else {}
    ends = [*_ids(generation.get("eos_token_id")), *_ids(config.get("eos_token_id")), *_ids(inner.get("eos_token_id"))]
    chat = {
        "chat_template": template,
        "eos_token_ids": stop_ids(ends, eos, template, ids),
        "bos_token_id": _one_id(ids.get(bos or ""), generation.get("bos_token_id"), config.get("bos_token_id")),
        "pad_token_id": _one_id(ids.get(pad or ""), generation.get("pad_token_id"), config.get("pad_token_id")),
        "bos_token": bos,
        "eos_token": eos,
    }
    return {key: value for key, value in chat.items() if value is not None}, notes


def stop_ids(given: Iterable[int], eos: str | None, template: str | None, ids: Mapping[str, int]) -> list[int]:
    """Sorted union of ``given``, the id of ``eos`` and the ids of the turn ends that occur in ``template``."""
    found = set(given)
    names = [name for name in TURN_ENDS if template is not None and name in template]
    if eos is not None:
        names.append(eos)
    found.update(ids[name] for name in names if name in ids)
    return sorted(found)


def generation_defaults(folder: Path) -> dict[str, object] | None:
    """The sampling settings of generation_config.json, those it has; None without any."""
    settings = optional_json(folder / "generation_config.json")
    found = {key: settings[key] for key in _SAMPLING if settings.get(key) is not None}
    return found or None


def generation_of_gguf(metadata: Mapping[str, object]) -> dict[str, object] | None:
    """The sampling settings among the ``general.sampling`` keys of a GGUF; None without any."""
    found = {name: metadata.get(f"general.sampling.{key}") for key, name in _GGUF_SAMPLING.items()}
    settings = {name: value for name, value in found.items() if value is not None}
    return {"do_sample": True, **settings} if settings else None


def _template(folder: Path, settings: JSON, notes: list[str]) -> str | None:
    """chat_template.jinja, else chat_template.json, else that of tokenizer_config.json."""
    try:
        text = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, ValueError) as error:
        raise SourceError(f"chat_template.jinja cannot be read: {error}", code="open", path=str(folder)) from error
    if text.strip():
        return text
    found = optional_json(folder / "chat_template.json").get("chat_template") or settings.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        if others := sorted(str(name) for name in named if name != "default"):
            notes.append(f'only the chat template "default" is stored, not {", ".join(others)}')
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise SourceError("the chat template is not text", code="chat_template", path=str(folder))
    return found


def _token_text(token: object) -> str | None:
    """A special token of tokenizer_config.json: its text, or an object that holds it."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _token_ids(tokenizer_json: bytes | None) -> dict[str, int]:
    """Ids of the added tokens, special tokens among them."""
    if tokenizer_json is None:
        return {}
    try:
        added = json.loads(tokenizer_json).get("added_tokens") or []
        return {entry["content"]: entry["id"] for entry in added}
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise SourceError("tokenizer.json is not a tokenizer", code="tokenizer") from error


def _ids(value: object) -> list[int]:
    """One id or a list of ids."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if _is_id(item)]


def _one_id(*candidates: object) -> int | None:
    for value in candidates:
        if _is_id(value):
            return value
    return None


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

"""What a file says about itself, in plain words: origin, content, proof (SPEC 2, 6, 8, 9).

Nothing is judged and nothing added: what a file does not state is said to be unknown, what nobody measured to be
unmeasured.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cortiq.container import File
from cortiq.container.digest import FIELD, covered
from cortiq.container.location import is_url
from cortiq.container.signature import signature_path
from cortiq.layouts import DTYPE_NAMES

_MAX_TEXT = 200
_TOLD = frozenset({"tool", "source_model", "source_format", "revision", "options", "defrag", "moe_defrag"})


@dataclass(frozen=True, slots=True)
class Passage:
    """A heading of one word and the sentences below it. Names out of the file are as they are: escape to print."""

    heading: str
    sentences: tuple[str, ...]


def story(file: File) -> tuple[Passage, ...]:
    """The story of an open file. Reads what opening it has read."""
    parts = (
        ("model", _model(file)),
        ("origin", _origin(file)),
        ("weights", _weights(file)),
        ("text", _text(file)),
        ("skills", _skills(file)),
        ("proof", _proof(file)),
    )
    told = ((heading, tuple(sentences)) for heading, sentences in parts)
    return tuple(Passage(heading, sentences) for heading, sentences in told if sentences)


def _model(file: File) -> Iterator[str]:
    arch = file.arch
    entries = [file.tensors[name] for name in covered(file)]
    count = sum(math.prod(entry.shape) for entry in entries if DTYPE_NAMES[entry.dtype] != "u8")
    if file.header.is_skill_file:
        what = f"{count:,} parameters made for a {arch.arch_name} model"
        yield f"This is a skill on its own, {what}; it does not run alone."
    else:
        yield f"This is a {arch.arch_name} model of {count:,} parameters."
    kinds = Counter(str(kind) for kind in arch.layer_types)
    layers = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    yield (
        f"It has {arch.num_layers} layers ({layers}), hidden size {arch.hidden_size}, {arch.num_attention_heads} "
        f"attention heads and a vocabulary of {arch.vocab_size}; it was made for {arch.max_position_embeddings} "
        "positions."
    )
    if file.parts:
        yield f"It lies in a set of {len(file.parts)} files."
    elif file.header.shard is not None:
        yield f"It is file {file.header.shard.no} of a set of {file.header.shard.count}; the others hold the rest."


def _origin(file: File) -> Iterator[str]:
    origin = file.header.get("provenance")
    if not isinstance(origin, Mapping):
        yield "Where it comes from is unknown: the file does not say."
        return
    tool, source = origin.get("tool"), origin.get("source_model")
    made = f"It was made by {_plain(tool)}" if tool else "What made it is unknown"
    of = f" from {_plain(source)}" if source else ", from what is unknown"
    kind = f" ({_plain(origin['source_format'])})" if origin.get("source_format") else ""
    yield f"{made}{of}{kind}."
    if revision := origin.get("revision"):
        yield f"The revision of that source is {_plain(revision)}."
    if options := origin.get("options"):
        yield f"The options were {_plain(options)}."
    yield from _cuts(origin)
    rest = {key: value for key, value in origin.items() if key not in _TOLD and value is not None}
    if rest:
        yield f"Its maker also states: {_plain(rest)}."


def _cuts(origin: Mapping[str, Any]) -> Iterator[str]:
    """What was taken out of the model."""
    cut = origin.get("defrag")
    if isinstance(cut, Mapping):
        before, after = _plain(cut.get("pre_intermediate")), _plain(cut.get("post_intermediate_max"))
        yield f"Feed-forward neurons were taken out: of {before} in a layer at most {after} are left."
    experts = origin.get("moe_defrag")
    if isinstance(experts, Mapping):
        before, cover = _plain(experts.get("num_experts_pre")), _plain(experts.get("cover"))
        yield f"Experts were taken out: of {before} in a layer those are left that took {cover} of the traffic."


def _weights(file: File) -> Iterator[str]:
    entries = [file.tensors[name] for name in covered(file)]
    if not entries:
        yield "It holds no tensors."
        return
    sizes: Counter[str] = Counter()
    for entry in entries:
        sizes[DTYPE_NAMES[entry.dtype]] += entry.nbytes
    total = max(sum(sizes.values()), 1)
    shares = ", ".join(f"{name} {nbytes / total:.1%}" for name, nbytes in sizes.most_common())
    yield f"Its {len(entries)} tensors are stored in {total:,} bytes: {shares}."
    if file.masks is not None:
        yield f"It carries {len(file.masks)} task masks, which switch parts of it off for a task."


def _text(file: File) -> Iterator[str]:
    chat = file.header.chat
    if not file.envelope.vocab.nbytes:
        yield "It has no tokenizer of its own."
    else:
        yield "It carries its tokenizer."
    if chat is None or chat.chat_template is None:
        yield "It has no chat template."
    else:
        ends = ", ".join(map(str, chat.eos_token_ids)) or "not stated"
        yield f"Its chat template has {len(chat.chat_template)} characters; the ids that end an answer are {ends}."


def _skills(file: File) -> Iterator[str]:
    for skill in file.skills.values():
        called = f", called {_plain(skill.name)}" if skill.name else ""
        owned = file.skills.entries(skill.id).values()
        does = f"replaces {len(owned)} tensors ({sum(entry.nbytes for entry in owned):,} bytes)"
        if skill.base_dir_hash is not None:
            does = f"belongs to the base with directory hash {skill.base_dir_hash:016x}"
        measured = f"was measured: {_plain(skill.quality)}" if skill.quality else "is unmeasured"
        yield f"Skill {_plain(skill.id)}{called} {does}; its quality {measured}."


def _proof(file: File) -> Iterator[str]:
    hashed = [name for name, value in file.section_hashes.items() if value]
    bare = [name for name, value in file.section_hashes.items() if not value]
    yield f"Every tensor carries a hash64, and so do {', '.join(hashed) or 'no sections'}."
    if bare:
        yield f"Nothing vouches for {', '.join(bare)}: without a hash."
    if file.header.get(FIELD) is not None:
        yield "SHA-256 digests of every tensor are inside as well."
    else:
        yield "It has no SHA-256 digests, so words and blocks that changed places would not be seen."
    if is_url(file.path):
        yield "Whether a signature lies beside it was not asked."
    elif os.path.lexists(signature_path(file.path)):
        yield "A signature lies beside it; `cortiq verify` tells whose it is and whether it holds."
    else:
        yield "It is not signed."


def _plain(value: Any) -> str:
    """JSON as words, cut where it gets long."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    elif isinstance(value, list | tuple):
        text = " ".join(_plain(item) for item in value)
    else:
        text = "unknown" if value is None else str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} ..."

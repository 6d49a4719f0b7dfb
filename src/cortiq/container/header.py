"""The header JSON (SPEC 2, 6.1, 8.1, 9.1, 10): strict text, typed fields, everything else kept as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cortiq.container.arch import Arch, read_arch
from cortiq.container.records import Place, array, hash64_digits, integer, key, optional, read_record, text
from cortiq.container.skill_records import Skill, read_skills
from cortiq.container.strict_json import MAX_VALUES, freeze, parse_json, thaw

QUANT_TYPES = ("Q8_ROW", "Q4_BLOCK", "Q8_2F", "VBIT", "BF16", "F16", "F32")
HASHED_SECTIONS = ("masks", "vocab", "index")
MAX_SHARDS = 100_000
MAX_EOS_IDS = 1024
SET_DIGITS = 32
_HEX = frozenset("0123456789abcdef")


def _set_digits(value: Any, place: Place) -> str:
    """128 bits as hexadecimal digits, in lower case."""
    if not isinstance(value, str) or len(value) != SET_DIGITS or not _HEX.issuperset(value.lower()):
        place.fail(f"{SET_DIGITS} hexadecimal digits", value)
    return value.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """Which part of a set of files this is (SPEC 10).

    ``set``   32 hexadecimal digits that all files of a set share, None where the writer gave none
    ``dirs``  in file 1, hash64 of the directories of all files in order; additions both
    """

    no: int = key(integer(1, MAX_SHARDS))
    count: int = key(integer(1, MAX_SHARDS))
    set: str | None = optional(_set_digits)
    dirs: tuple[int, ...] | None = key(array(hash64_digits, MAX_SHARDS), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatConfig:
    """The typed part of ``tokenizer_config`` (SPEC 6.1)."""

    chat_template: str | None = optional(text)
    eos_token_ids: tuple[int, ...] = key(array(integer(0), MAX_EOS_IDS), ())
    bos_token_id: int | None = optional(integer(0))
    pad_token_id: int | None = optional(integer(0))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Header(Mapping[str, Any]):
    """The header as a read-only mapping, with what the container relies on as attributes.

    ``raw``             the bytes as stored
    ``fields``          the whole object, read-only
    ``arch``            what the model is
    ``chat``            typed ``tokenizer_config``, None when the file carries none
    ``shard``           None for an ordinary file
    ``section_hashes``  hash64 of masks, vocab and index by name, those the file states; 0 means unhashed
    ``skills``          the registry of skills in its order (SPEC 9)
    """

    raw: bytes
    fields: Mapping[str, Any]
    arch: Arch
    chat: ChatConfig | None
    shard: ShardInfo | None
    section_hashes: Mapping[str, int]
    skills: tuple[Skill, ...]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __repr__(self) -> str:
        return f"Header({', '.join(self.fields)})"

    def to_dict(self) -> dict[str, Any]:
        """A fresh copy as dict and list, to be changed and written."""
        copy: dict[str, Any] = thaw(self.fields)
        return copy

    @property
    def is_skill_file(self) -> bool:
        """True when a skill record is bound to a base (SPEC 9.1)."""
        return any(skill.base_dir_hash is not None for skill in self.skills)

    @property
    def quant_type(self) -> str | None:
        """Informational: the truth is each tensor's dtype."""
        value: str | None = self.fields.get("quant_type")
        return value


def parse_header(raw: bytes, offset: int = 128) -> Header:
    """The header in ``raw``, which lies at ``offset`` of its file.

    Raises what ``parse_json`` (at most ``MAX_VALUES``), ``read_arch`` and ``read_skills`` raise, and Parse with one of
    the codes ``header_type``, ``header_field``, ``shard``, ``chat``, ``section_hash``.
    """
    fields = parse_json(raw, section="header", offset=offset, most_values=MAX_VALUES)
    root = Place("header_field", "", offset)
    if not isinstance(fields, dict):
        Place("header_type", "(top level)", offset).fail("an object", fields)
    _check_identity(fields, root)
    if "arch" not in fields:
        Place("arch", "arch", offset).fail("an object", "nothing")
    arch = read_arch(fields["arch"], offset)
    return Header(
        raw=bytes(raw),
        fields=freeze(fields),
        arch=arch,
        chat=_chat(fields.get("tokenizer_config"), arch, offset),
        shard=_shard(fields.get("shard"), offset),
        section_hashes=_section_hashes(fields.get("section_hashes"), offset),
        skills=read_skills(fields.get("skills"), "skills" in fields, arch.hidden_size, offset),
    )


def _check_identity(fields: dict[str, Any], root: Place) -> None:
    if fields.get("format", "cmf") != "cmf":
        root.child("format").fail('"cmf"', fields["format"])
    if "version" not in fields:
        root.child("version").fail(2, "nothing")
    if integer(0, 2**32 - 1)(fields["version"], root.child("version")) != 2:
        root.child("version").fail(2, fields["version"])
    if "quant_type" in fields:
        text(fields["quant_type"], root.child("quant_type"))
    for name in ("tokenizer_config", "section_hashes", "shard"):
        if fields.get(name) is not None and not isinstance(fields[name], dict):
            _object_place(name, root.offset).fail("an object or null", fields[name])


def _object_place(name: str, offset: int) -> Place:
    codes = {"tokenizer_config": "chat", "section_hashes": "section_hash", "shard": "shard"}
    return Place(codes[name], name, offset)


def _chat(value: Any, arch: Arch, offset: int) -> ChatConfig | None:
    if value is None:
        return None
    place = _object_place("tokenizer_config", offset)
    chat = read_record(ChatConfig, value, place)
    named = [("eos_token_ids", token) for token in chat.eos_token_ids]
    named += [("bos_token_id", chat.bos_token_id or 0), ("pad_token_id", chat.pad_token_id or 0)]
    for name, token in named:
        if token >= arch.vocab_size:
            place.child(name).fail(f"ids below vocab_size {arch.vocab_size}", token)
    return chat


def _shard(value: Any, offset: int) -> ShardInfo | None:
    if value is None:
        return None
    place = _object_place("shard", offset)
    shard = read_record(ShardInfo, value, place)
    if shard.no > shard.count:
        place.child("no").fail(f"at most count {shard.count}", shard.no)
    if shard.dirs is not None and len(shard.dirs) != shard.count:
        place.child("dirs").fail(f"{shard.count} hashes", len(shard.dirs))
    return shard


def _section_hashes(value: Any, offset: int) -> Mapping[str, int]:
    place = _object_place("section_hashes", offset)
    hashes = {}
    for name in HASHED_SECTIONS:
        if value is None or name not in value:
            continue
        hashes[name] = hash64_digits(value[name], place.child(name))
    frozen: Mapping[str, int] = freeze(hashes)
    return frozen

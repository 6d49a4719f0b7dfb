"""Checks of a file beyond its hashes: what a reader accepts and a careful writer avoids (SPEC 1, 3, 8.1, 10).

``METADATA_CHECKS`` look at envelope, header and directory alone. ``CONTENT_CHECKS`` read sections; the check of a
section's content is registered there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cortiq.container.digest import FIELD, is_digest_tensor
from cortiq.container.features import features_of
from cortiq.container.file import File
from cortiq.container.finding import Check, Finding, odd
from cortiq.container.header import HASHED_SECTIONS
from cortiq.container.names import same_after_normalization
from cortiq.container.section_checks import check_index, check_masks, check_skills
from cortiq.container.tensor_checks import overlapping


def check_flags(file: File) -> Iterator[Finding]:
    """Reserved flags, and feature bits that contradict the content."""
    envelope = file.envelope
    if envelope.flags:
        yield odd("the reserved flags are set", "flags", 0, f"{envelope.flags:#x}", offset=8)
    expected = features_of(
        set(file.tensors.table.column("dtype").tolist()),
        masks=envelope.masks.nbytes > 0,
        loops=file.arch.num_loops,
        skill_file=file.header.is_skill_file,
    )
    if expected != envelope.features:
        facts = (f"{int(expected):#x}", f"{envelope.features:#x}")
        yield odd("the feature bits contradict the content", "feature_bits", *facts, offset=12)


def check_names(file: File) -> Iterator[Finding]:
    """Tensors on the same bytes, and names that only look different."""
    table = file.tensors.table
    for before, after in overlapping(table):
        yield odd(f"shares its bytes with {table.names[before]!r}", "alias", tensor=table.names[after])
    for first, second in same_after_normalization(table.names):
        yield odd(f"looks like {first!r}", "name_normalization", tensor=second)


def check_envelope(file: File) -> Iterator[Finding]:
    """Numbers nothing depends on, which no hash covers."""
    envelope, table = file.envelope, file.tensors.table
    for position, name in enumerate(HASHED_SECTIONS):
        part = envelope.section(name)
        if part.offset and not part.nbytes:
            at = 0x40 + 16 * position
            yield odd(f"the absent section {name} has an offset", "absent_with_offset", 0, part.offset, offset=at)
    end = max((table.column("off") + table.column("nbytes")).tolist(), default=0)
    if end != envelope.data.nbytes:
        message = "the data section does not end with its last tensor"
        yield odd(message, "data_len", end, envelope.data.nbytes, offset=0x38)


def check_stated_hashes(file: File) -> Iterator[Finding]:
    """Hashes of sections that are not there, and digits another writer would not write."""
    for name in sorted(file.header.section_hashes):
        if file.envelope.section(name).nbytes == 0:
            yield odd("the header states a hash of an absent section", "section_hash_stale", "none", name)
    for name, digits in (file.header.get("section_hashes") or {}).items():
        if name in HASHED_SECTIONS and (len(digits) != 16 or digits != digits.lower()):
            yield odd(f"the hash of {name} is not 16 lowercase digits", "section_hash_digits", found=digits)


def check_shard(file: File) -> Iterator[Finding]:
    """What only the first file of a set should carry: in another one nobody reads it."""
    shard = file.header.shard
    if shard is None or shard.no <= 1:
        return
    carried = [name for name in ("masks", "vocab", "index") if file.envelope.section(name).nbytes]
    carried += [name for name in ("skills", "tokenizer_config") if file.header.get(name)]
    for name in carried:
        yield odd("only the first file of a set is asked for this", "shard_extra", "none", name)


def check_stray_digests(file: File) -> Iterator[Finding]:
    """The tensor of digests without the header field that says what it is."""
    stated = file.header.get(FIELD)
    own = stated.get("tensor") if isinstance(stated, Mapping) else None
    for name in file:
        if is_digest_tensor(name) and name != own:
            yield odd(
                "the header says nothing of these digests, and they are not checked", "digests_stray", tensor=name
            )


METADATA_CHECKS: tuple[Check, ...] = (
    check_flags,
    check_names,
    check_envelope,
    check_stated_hashes,
    check_shard,
    check_stray_digests,
)

CONTENT_CHECKS: tuple[Check, ...] = (check_masks, check_index, check_skills)
"""One for each kind of content: masks, skills, sparse index. Run at every level but ``quick``."""

"""The rows of the catalogue, in its order. One module for each section, or for a part of one."""

from __future__ import annotations

from hostile.catalogue import (
    content,
    directory,
    envelope,
    header_fields,
    header_json,
    masks,
    records,
    shards,
    signature,
    skills,
    sparse_index,
    system,
    tokenizer,
    whole_file,
)
from hostile.row import Row

ROWS: tuple[Row, ...] = (
    *envelope.ROWS,
    *header_json.ROWS,
    *header_fields.ROWS,
    *directory.ROWS,
    *records.ROWS,
    *content.ROWS,
    *masks.ROWS,
    *tokenizer.ROWS,
    *sparse_index.ROWS,
    *signature.ROWS,
    *skills.ROWS,
    *shards.ROWS,
    *system.ROWS,
    *whole_file.ROWS,
)

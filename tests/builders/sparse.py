"""A valid file of 600 MB of which the disk holds the sections alone: its tensors are holes."""

from __future__ import annotations

from pathlib import Path

from builders.cmf import U8, Cmf, T, pattern, two_layers
from cortiq.container.hash64 import hash64

COUNT = 300
NBYTES = 2_000_000


def sparse_model(path: Path) -> Path:
    """300 tensors of 2 MB, masks, a tokenizer of 3 MB and a sparse index behind them."""
    names = [f"model.layers.{i % 2}.mlp.part.{i}.weight" for i in range(COUNT)]
    small = two_layers()
    sections = {"masks": small.masks, "vocab": pattern(3_000_000), "index": small.index}
    made = Cmf(small.header, [T(name, U8, (64,), bytes(64)) for name in names], **sections, features=0b11).build()
    digest = hash64(bytes(NBYTES))
    for i in range(COUNT):
        made.set_record(i, shape=(NBYTES,), off=i * NBYTES, nbytes=NBYTES, hash=digest)
    start = int(made.get("data_off"))
    end = start + COUNT * NBYTES
    made.set("data_len", end - start)
    with path.open("wb") as stream:
        stream.seek(end)
        for name, content in sections.items():
            made.set(f"{name}_off", stream.tell())
            stream.write(content)
        stream.seek(0)
        stream.write(made.rehash().data[:start])
    return path

"""A GGUF file as a source: weights in any block format the ``gguf`` package decodes, metadata, rebuilt tokenizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf.constants import GGMLQuantizationType

from cortiq.convert.chat import generation_of_gguf
from cortiq.convert.families import Family, family_of_architecture
from cortiq.convert.gguf_arch import arch_of_gguf
from cortiq.convert.gguf_tokenizer import gguf_tokenizer
from cortiq.convert.names import GGUF_ROPE_FACTORS, Place, check_shape, place_gguf
from cortiq.convert.source import Source, SourceTensor
from cortiq.convert.sources.common import drop_zero_biases, settle_tying
from cortiq.convert.sources.gguf_file import GgufFile
from cortiq.convert.sources.gguf_tensor import GgufTensor, Undo
from cortiq.errors import MissingTensor, SourceError

_EMBEDDING = "token_embd.weight"
_HEAD = "output.weight"


def open_gguf(path: Path) -> Source:
    """Open the GGUF at ``path``. Weights are mapped, not read.

    Raises SourceError for a file that is not valid, UnsupportedArch, UnsupportedFeature, MissingTensor and
    ShapeMismatch for a model that cannot be converted.
    """
    file = GgufFile(path)
    try:
        return _assemble(path, file, family_of_architecture(file.metadata.get("general.architecture")))
    except BaseException:
        file.close()
        raise


def _assemble(path: Path, file: GgufFile, family: Family) -> Source:
    if _EMBEDDING not in file.records:
        raise MissingTensor("1 tensors are missing: " + _EMBEDDING, code="tensor", tensor=_EMBEDDING)
    arch = arch_of_gguf(
        file.metadata,
        family,
        vocab_size=file.records[_EMBEDDING].shape[0],
        tied=_HEAD not in file.records,
        factors=_rope_factors(file),
    )
    layers = arch["num_layers"]
    assert isinstance(layers, int)
    tensors: dict[str, SourceTensor] = {}
    for place in place_gguf(file.records, family, layers).places:
        record = file.records[place.source_name]
        check_shape(place, record.shape, arch)
        tensors[place.name] = GgufTensor(file.map, record, place, _undo(place, family, arch))
    notes = drop_zero_biases(tensors) + settle_tying(tensors, arch)
    tokenizer_json, tokenizer_config = gguf_tokenizer(file.metadata)
    return Source(
        kind="gguf",
        name=path.name,
        arch=arch,
        tensors=tuple(tensors.values()),
        tokenizer_json=tokenizer_json,
        tokenizer_config=tokenizer_config,
        generation=generation_of_gguf(file.metadata),
        notes=tuple(notes),
        stamps={path.name: file.map.stamp},
        closers=(file,),
    )


def _undo(place: Place, family: Family, arch: dict[str, object]) -> Undo:
    head_dim = arch["head_dim"]
    assert isinstance(head_dim, int)
    interleaved = family.gguf_permuted_heads and place.rule.heads
    return Undo(head_dim if interleaved else 0, family.gguf_norm_offset if place.rule.norm else 0.0)


def _rope_factors(file: GgufFile) -> list[float] | None:
    record = file.records.get(GGUF_ROPE_FACTORS)
    if record is None:
        return None
    if record.kind != GGMLQuantizationType.F32:
        raise SourceError("must be F32", code="ggml_type", tensor=GGUF_ROPE_FACTORS, found=record.kind.name)
    values = file.map.array(record.offset, record.nbytes, np.dtype("<f4"))
    return [float(str(value)) for value in values]

"""From the names of a source to canonical names, which are Hugging Face's (SPEC 3).

Every tensor of a source ends in one of four ways: placed under its canonical name, known to be no weight, left out as
part of another model in the same checkpoint (the receipt says so), or refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cortiq.convert.families import TOP_RULES, Family, TensorRule
from cortiq.errors import MissingTensor, ShapeMismatch, SourceError, UnsupportedArch

_HF_PREFIXES = (("model.language_model.", "model."), ("language_model.model.", "model."), ("language_model.", ""))
_HF_LAYER = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,5})\.(.+)", re.ASCII)
_GGUF_LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.(.+)", re.ASCII)
_INVERSE_FREQUENCIES = re.compile(r"model\.(layers\.[0-9]+\.self_attn\.)?rotary_emb\.inv_freq", re.ASCII)
GGUF_ROPE_FACTORS = "rope_freqs.weight"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor of the source goes: its canonical name, its name in the source, its row of the family's table."""

    name: str
    source_name: str
    rule: TensorRule


@dataclass(frozen=True, slots=True)
class Placement:
    """``places`` in the order of execution, which is the order they are written in; ``left_out`` source names."""

    places: tuple[Place, ...]
    left_out: tuple[str, ...]


def place_huggingface(names: Iterable[str], family: Family, layers: int) -> Placement:
    """Place the tensors of a Hugging Face checkpoint. Raises as ``_place``."""
    found: dict[str, str] = {}
    left_out: list[str] = []
    for name in names:
        if name.startswith(family.left_out):
            left_out.append(name)
            continue
        canonical = canonical_name(name)
        if not _INVERSE_FREQUENCIES.fullmatch(canonical):
            found[name] = canonical
    return _place(found, family, layers, left_out)


def place_gguf(names: Iterable[str], family: Family, layers: int) -> Placement:
    """Place the tensors of a GGUF. Raises as ``_place``."""
    top = {rule.gguf: rule.name for rule in TOP_RULES}
    inner = {rule.gguf: rule.name for rule in family.layer_rules}
    found: dict[str, str] = {}
    for name in names:
        if name == GGUF_ROPE_FACTORS:  # read into arch
            continue
        layer = _GGUF_LAYER.fullmatch(name)
        if layer and layer[2] in inner:
            found[name] = f"model.layers.{layer[1]}.{inner[layer[2]]}"
        else:
            found[name] = top.get(name, "")
    return _place(found, family, layers, [])


def canonical_name(name: str) -> str:
    """The name in a checkpoint of the language model alone of a tensor that may come from a larger model."""
    for prefix, short in _HF_PREFIXES:
        if name.startswith(prefix):
            return short + name[len(prefix) :]
    return name


def check_shape(place: Place, shape: tuple[int, ...], arch: Mapping[str, object]) -> None:
    """Raise ShapeMismatch unless ``shape`` is the one ``arch`` implies."""

    def size(*keys: str) -> int:
        product = 1
        for key in keys:
            value = arch[key]
            assert isinstance(value, int)
            product *= value
        return product

    sizes = {
        "h": size("hidden_size"),
        "i": size("intermediate_size"),
        "v": size("vocab_size"),
        "d": size("head_dim"),
        "q": size("num_attention_heads", "head_dim"),
        "k": size("num_kv_heads", "head_dim"),
    }
    expected = tuple(sizes[letter] for letter in place.rule.shape)
    if shape != expected:
        raise ShapeMismatch(
            "shape and configuration disagree",
            code="shape",
            tensor=place.source_name,
            expected=list(expected),
            found=list(shape),
        )


def _place(found: Mapping[str, str], family: Family, layers: int, left_out: list[str]) -> Placement:
    """Raises UnsupportedArch.tensor naming every tensor that has no place, MissingTensor naming every required one
    that is absent, SourceError.duplicate for two with one place.
    """
    embedding, *rest = TOP_RULES
    slots = {embedding.name: embedding}
    for i in range(layers):
        slots |= {f"model.layers.{i}.{rule.name}": rule for rule in family.layer_rules}
    slots |= {rule.name: rule for rule in rest}
    unknown = sorted(name for name, canonical in found.items() if canonical not in slots)
    if unknown:
        raise UnsupportedArch(
            f"{len(unknown)} tensors have no place in a {family.name} model of {layers} layers: {', '.join(unknown)}",
            code="tensor",
            tensor=unknown[0],
        )
    sources: dict[str, str] = {}
    for name, canonical in found.items():
        if canonical in sources:
            raise SourceError("two tensors with one meaning", code="duplicate", tensor=name, found=sources[canonical])
        sources[canonical] = name
    missing = [name for name, rule in slots.items() if name not in sources and not rule.optional]
    if missing:
        raise MissingTensor(
            f"{len(missing)} tensors are missing: {', '.join(missing)}", code="tensor", tensor=missing[0]
        )
    order = [name for name in slots if name in sources]
    return Placement(tuple(Place(name, sources[name], slots[name]) for name in order), tuple(sorted(left_out)))

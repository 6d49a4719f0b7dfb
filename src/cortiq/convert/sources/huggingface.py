"""A folder with a Hugging Face checkpoint: config.json, safetensors (one file or shards), tokenizer (SPEC 3, 6)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cortiq.convert.chat import chat_of_huggingface, generation_defaults
from cortiq.convert.families import Family, family_of_model_type
from cortiq.convert.huggingface_arch import arch_of_config
from cortiq.convert.json_file import read_json
from cortiq.convert.names import Placement, check_shape, place_huggingface
from cortiq.convert.source import Source, SourceTensor
from cortiq.convert.sources.common import drop_zero_biases, settle_tying
from cortiq.convert.sources.safetensors_file import SafetensorsFile
from cortiq.errors import SourceError

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def open_huggingface(folder: Path) -> Source:
    """Open the checkpoint in ``folder``. Weights are mapped, not read.

    Raises SourceError for missing, unreadable or contradicting files, UnsupportedArch, MissingTensor and ShapeMismatch
    for a model that cannot be converted.
    """
    config = read_json(folder / "config.json")
    family = family_of_model_type(config.get("model_type"))
    arch = arch_of_config(config, family)
    files = _weight_files(folder)
    try:
        return _assemble(folder, config, family, arch, files)
    except BaseException:
        for file in files.values():
            file.close()
        raise


def _assemble(
    folder: Path,
    config: Mapping[str, object],
    family: Family,
    arch: dict[str, object],
    files: Mapping[str, SafetensorsFile],
) -> Source:
    by_name = {name: file for file in files.values() for name in file.records}
    layers = arch["num_layers"]
    assert isinstance(layers, int)
    placement = place_huggingface(by_name, family, layers)
    notes = _left_out_note(placement)
    tensors: dict[str, SourceTensor] = {}
    for place in placement.places:
        tensor = by_name[place.source_name].tensor(place.source_name, place.name, place.rule)
        check_shape(place, tensor.shape, arch)
        tensors[place.name] = tensor
    notes += drop_zero_biases(tensors)
    notes += settle_tying(tensors, arch)
    tokenizer_json = _optional_bytes(folder / "tokenizer.json")
    tokenizer_config, chat_notes = chat_of_huggingface(folder, config, tokenizer_json)
    return Source(
        kind="huggingface",
        name=folder.resolve().name,
        arch=arch,
        tensors=tuple(tensors.values()),
        tokenizer_json=tokenizer_json,
        tokenizer_config=tokenizer_config,
        generation=generation_defaults(folder),
        notes=(*notes, *chat_notes),
        stamps={name: file.map.stamp for name, file in files.items()},
        closers=tuple(files.values()),
    )


def _weight_files(folder: Path) -> dict[str, SafetensorsFile]:
    """The file or files with weights, by name. A single model.safetensors wins over an index."""
    if (folder / _SINGLE).is_file():
        return {_SINGLE: SafetensorsFile(folder / _SINGLE)}
    if not (folder / _INDEX).is_file():
        raise SourceError(f"there is neither {_SINGLE} nor {_INDEX}", code="missing_file", path=str(folder))
    weight_map = read_json(folder / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise SourceError(f"{_INDEX} has no weight_map of names to files", code="index", path=str(folder))
    files: dict[str, SafetensorsFile] = {}
    try:
        for name in sorted(set(weight_map.values())):
            if Path(name).name != name:
                raise SourceError(f"{_INDEX} names a file outside the folder: {name!r}", code="index", path=str(folder))
            files[name] = SafetensorsFile(folder / name)
        _check_index(folder, weight_map, files)
    except BaseException:
        for file in files.values():
            file.close()
        raise
    return files


def _check_index(folder: Path, weight_map: Mapping[str, str], files: Mapping[str, SafetensorsFile]) -> None:
    """The index and the shards must name the same tensors in the same files."""
    for tensor, name in weight_map.items():
        if tensor not in files[name].records:
            raise SourceError(
                f"{_INDEX} puts a tensor into {name}, which does not hold it",
                code="index",
                path=str(folder),
                tensor=tensor,
            )
    for name, file in files.items():
        for tensor in file.records:
            if weight_map.get(tensor) != name:
                raise SourceError(
                    f"{name} holds a tensor that {_INDEX} does not put there",
                    code="index",
                    path=str(folder),
                    tensor=tensor,
                )


def _left_out_note(placement: Placement) -> list[str]:
    if not placement.left_out:
        return []
    prefixes = sorted({name.split(".")[0] if name.count(".") else name for name in placement.left_out})
    return [f"left out {len(placement.left_out)} tensors that are not of the language model ({', '.join(prefixes)})"]


def _optional_bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"{path.name} cannot be read: {error.strerror}", code="open", path=str(path)) from error

"""Safetensors files: rows as they lie there, and nothing but whole files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from cortiq.convert.families import TensorRule
from cortiq.convert.sources.safetensors_file import SafetensorsFile
from cortiq.errors import SourceError

RULE = TensorRule("w", "w", "ih")


def write(path: Path, header: object, payload: bytes, *, length: int | None = None) -> Path:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + payload)
    return path


def record(dtype: str, shape: list[Any], start: Any, stop: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_blocks_of_rows(dtype: Any, tmp_path: Path) -> None:
    values = np.arange(60, dtype=np.float32).reshape(12, 5).astype(dtype)
    vector = np.arange(7, dtype=np.float32).astype(dtype)
    save_file({"w": values, "v": vector}, tmp_path / "m.safetensors")
    file = SafetensorsFile(tmp_path / "m.safetensors")
    tensor = file.tensor("w", "canonical", RULE)
    assert (tensor.name, tensor.source_name, tensor.shape, tensor.nbytes) == ("canonical", "w", (12, 5), values.nbytes)
    for first, last in ((0, 12), (3, 4), (11, 12), (0, 1)):
        block = tensor.read(first, last)
        assert block.dtype == values.dtype
        np.testing.assert_array_equal(block, values[first:last])
    tensor.release(0, 12)
    np.testing.assert_array_equal(tensor.read(0, 12), values)
    np.testing.assert_array_equal(file.tensor("v", "v", RULE).read(0, 1), vector[None])
    del block
    file.close()


def test_rows_at_odd_offsets_are_copied(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    header = {"w": record("F32", [2, 3], 0, 24)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 4 + 1)
    file = SafetensorsFile(write(tmp_path / "m.safetensors", text, values.tobytes()))
    block = file.tensor("w", "w", RULE).read(0, 2)
    assert block.flags.aligned
    np.testing.assert_array_equal(block, values.reshape(2, 3))
    file.close()


def test_metadata_is_no_tensor(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "w": record("F32", [1], 0, 4)}
    file = SafetensorsFile(write(tmp_path / "m.safetensors", header, bytes(4)))
    assert list(file.records) == ["w"]
    file.close()


def test_other_element_types_are_refused_by_name(tmp_path: Path) -> None:
    file = SafetensorsFile(write(tmp_path / "m.safetensors", {"w": record("F8_E4M3", [4], 0, 4)}, bytes(4)))
    with pytest.raises(SourceError, match="F8_E4M3") as caught:
        file.tensor("w", "w", RULE)
    assert caught.value.tensor == "w"
    file.close()


WHOLE = {"a": record("F32", [2], 0, 8), "b": record("F32", [1], 8, 12)}
BROKEN: list[tuple[str, object, int, str]] = [
    ("a gap", WHOLE | {"b": record("F32", [1], 12, 16)}, 16, "gap"),
    ("an overlap", WHOLE | {"b": record("F32", [1], 4, 8)}, 8, "overlap"),
    ("a short file", WHOLE, 11, "end"),
    ("a long file", WHOLE, 13, "end"),
    ("a size that is not the shape's", WHOLE | {"b": record("F32", [2], 8, 12)}, 12, "shape"),
    ("no shape", WHOLE | {"b": {"dtype": "F32", "data_offsets": [8, 12]}}, 12, "malformed"),
    ("a shape of text", WHOLE | {"b": record("F32", ["1"], 8, 12)}, 12, "malformed"),
    ("a negative offset", WHOLE | {"b": record("F32", [1], -4, 0)}, 12, "malformed"),
    ("reversed offsets", WHOLE | {"b": record("F32", [1], 12, 8)}, 12, "malformed"),
    ("a fractional offset", WHOLE | {"b": record("F32", [1], 8.0, 12)}, 12, "malformed"),
    ("a record that is no object", WHOLE | {"b": 3}, 12, "not an object"),
    ("a list", [1, 2], 0, "not an object"),
    ("no JSON", b"{nonsense", 0, "JSON"),
    ("no text", b"\xff\xfe", 0, "JSON"),
    ("UTF-16", '{"a": {}}'.encode("utf-16"), 0, "JSON"),
    ("nested without end", b'{"a": ' + b"[" * 100_000, 0, "nested"),
    ("a name twice", b'{"a": {}, "a": {}}', 0, "twice"),
    ("metadata that are no texts", WHOLE | {"__metadata__": {"format": 1}}, 12, "metadata"),
    ("an unknown type", WHOLE | {"b": record("F33", [1], 8, 12)}, 12, "F33"),
    ("half a byte", {"a": record("F4", [3], 0, 1)}, 1, "shape"),
]


@pytest.mark.parametrize(("header", "payload", "named"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_broken_files_are_refused(header: object, payload: int, named: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=named) as caught:
        SafetensorsFile(write(tmp_path / "m.safetensors", header, bytes(payload)))
    assert caught.value.code == "safetensors"
    assert caught.value.path == "m.safetensors"


@pytest.mark.parametrize("length", [10**6, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file(length: int, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="header"):
        SafetensorsFile(write(tmp_path / "m.safetensors", WHOLE, bytes(12), length=length))


@pytest.mark.parametrize("data", [b"", b"\x01\x02"])
def test_files_without_a_header(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with pytest.raises(SourceError):
        SafetensorsFile(path)

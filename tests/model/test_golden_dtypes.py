"""Files upstream wrote in every dtype that is decoded before it is multiplied: they run, with upstream's logits."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

import cortiq
from cortiq.container.hash64 import hash64
from cortiq.errors import Bounds
from cortiq.layouts import layout, native

core = pytest.importorskip("cortiq._native", reason="the native core is not built")

DATA = Path(__file__).parents[1] / "data" / "dtypes"
PERPLEXITIES = {"q4": 125.596, "q8_2f": 131.123, "q1": 114.898, "q1p": 111.637, "q1s": 110.668, "q1t": 126.845}
TARGETS = tuple(PERPLEXITIES)
IDS = [1, 8, 18, 42, 80, 35, 4, 84, 81, 92, 20, 59, 15, 82, 66, 64, 76, 5, 45,
    99, 70, 55, 54, 67, 94, 38, 93, 65, 51, 51, 65, 93, 38, 94, 67, 54, 55, 70, 99, 45, 5, 76, 64, 66, 82, 15, 59, 20,
    92, 81, 84, 4, 35, 80, 42, 18, 8, 12, 30, 62, 11]  # fmt: skip


def last_logits(target: str, *, isa: str | None = None, mode: str = "exact") -> np.ndarray:
    with cortiq.load(DATA / f"ragged-{target}.cmf", mode=mode, threads=1, isa=isa) as model:
        return np.asarray(model.forward(IDS)[-1])


@pytest.mark.parametrize("target", TARGETS)
def test_exact_logits_are_upstreams(target: str) -> None:
    with np.load(DATA / "logits.npz") as logits:
        np.testing.assert_allclose(last_logits(target), logits[f"ragged-{target}"], rtol=0, atol=1e-4)


@pytest.mark.parametrize(("target", "expected"), PERPLEXITIES.items())
def test_perplexity_is_upstreams(target: str, expected: float) -> None:
    with cortiq.load(DATA / f"ragged-{target}.cmf", mode="exact", threads=1) as model:
        logits = model.forward(IDS[:-1]).astype(np.float64)
    chosen = logits[np.arange(len(logits)), IDS[1:]] - np.log(np.exp(logits).sum(axis=1))
    assert np.exp(-chosen.mean()) == pytest.approx(expected, abs=1.5e-3)


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_instruction_set_gives_the_same_logits(target: str, mode: str) -> None:
    found = [last_logits(target, isa=isa, mode=mode).tobytes() for isa in core.supported_isas()]
    assert len(set(found)) == 1


@pytest.mark.parametrize("name", ["gptq-q1s", "gptq-q1t"])
def test_files_with_outliers_decode_as_upstream_does(name: str) -> None:
    expected = json.loads((DATA / "decoded.json").read_text())[name]
    with cortiq.open(DATA / f"{name}.cmf") as file:
        assert expected
        for tensor, digest in expected.items():
            kind, shape = layout(file[tensor].dtype), file[tensor].shape
            assert file[tensor].nbytes > kind.payload_nbytes(shape)
            assert f"{hash64(file[tensor].numpy().tobytes()):016x}" == digest
            assert native.decode(kind, file[tensor].raw, shape).tobytes() == file[tensor].numpy().tobytes()


@pytest.mark.parametrize("name", ["gptq-q1s", "gptq-q1t"])
def test_files_with_outliers_run(name: str) -> None:
    with cortiq.load(DATA / f"{name}.cmf", mode="fast", threads=1) as model:
        assert np.isfinite(model.forward([1, 2, 3, 4])).all()


def test_a_bad_outlier_is_refused_by_name_before_it_runs(tmp_path: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    with cortiq.open(DATA / "gptq-q1s.cmf") as file:
        entry = file.tensors[name]
        at = file.envelope.data.offset + entry.off + entry.nbytes - 6
    data = bytearray((DATA / "gptq-q1s.cmf").read_bytes())
    struct.pack_into("<I", data, at, 0xFFFFFFF0)
    (tmp_path / "bad.cmf").write_bytes(data)
    with pytest.raises(Bounds, match="q1s_index") as raised:
        cortiq.load(tmp_path / "bad.cmf", mode="fast", threads=1)
    assert raised.value.tensor == name

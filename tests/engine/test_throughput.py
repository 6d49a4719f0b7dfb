"""The benchmark: which rows, their names and fields, what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import cortiq
from builders.tiny import Tiny, write_tiny
from cortiq.engine import throughput
from cortiq.engine.throughput import Plan, measure
from cortiq.errors import UsageError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cortiq.Model]:
    path = write_tiny(tmp_path_factory.mktemp("model") / "m.cmf", Tiny(tied=True))
    with cortiq.load(path, threads=1) as model:
        yield model


def test_names_are_those_of_llama_bench() -> None:
    assert [
        throughput.Test(512, 0).name,
        throughput.Test(0, 128).name,
        throughput.Test(8, 4).name,
        throughput.Test(0, 16, 4096).name,
    ] == [
        "pp512",
        "tg128",
        "pp8+tg4",
        "tg16 @ d4096",
    ]
    plan = Plan(n_prompt=(8, 16), n_gen=(4, 0), pairs=((8, 4),), n_depth=(0, 32))
    assert [test.name for test in plan.tests()] == [
        *("pp8", "pp16", "tg4", "pp8+tg4"),
        *("pp8 @ d32", "pp16 @ d32", "tg4 @ d32", "pp8+tg4 @ d32"),
    ]


def test_rows(model: cortiq.Model) -> None:
    seen: list[str] = []
    plan = Plan(n_prompt=(8,), n_gen=(4,), n_depth=(0, 16), repetitions=3)
    rows = measure(model, plan, lambda row: seen.append(row["test"]))
    assert [row["test"] for row in rows] == seen == ["pp8", "tg4", "pp8 @ d16", "tg4 @ d16"]
    for row in rows:
        count = row["n_prompt"] + row["n_gen"]
        assert len(row["samples_ns"]) == len(row["samples_ts"]) == 3
        assert row["avg_ns"] == pytest.approx(sum(row["samples_ns"]) / 3, abs=1)
        assert row["samples_ts"] == pytest.approx([count * 1e9 / ns for ns in row["samples_ns"]])
        assert row["stddev_ns"] >= 0
        assert row["model_n_params"] == sum(entry_size(model, n) for n in model.file if n != "cmf.digests.sha256")
        assert (row["n_threads"], row["type_k"], row["mode"]) == (1, "f16", "fast")


def entry_size(model: cortiq.Model, name: str) -> int:
    size = 1
    for n in model.file.tensors[name].shape:
        size *= n
    return size


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (Plan(n_prompt=(257,)), "context"),
        (Plan(n_prompt=(8,), n_depth=(250,)), "context"),
        (Plan(n_prompt=(-1,)), "count"),
        (Plan(repetitions=0), "count"),
    ],
)
def test_what_cannot_be_measured(model: cortiq.Model, plan: Plan, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        measure(model, plan)
    assert caught.value.code == code

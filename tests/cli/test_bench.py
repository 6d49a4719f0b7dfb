"""``cortiq bench`` and ``ppl`` on a tiny model."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest

from cortiq.cli.main import main
from cortiq.convert import ConvertOptions, convert

CHECKPOINT = Path(__file__).parents[1] / "data" / "hf" / "llama"
SMALL = ["-p", "8", "-n", "4", "-r", "2", "-t", "1"]
LLAMA_BENCH_NAMES = {
    "cpu_info", "model_filename", "model_type", "model_size", "model_n_params", "n_threads", "n_batch", "n_prompt",
    "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bench") / "tiny.cmf"
    convert(CHECKPOINT, path, ConvertOptions())
    return str(path)


def rows(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert main(["bench", *arguments]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_json_has_llama_bench_names(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows([model, *SMALL, "-o", "json"], capsys)
    assert [(r["n_prompt"], r["n_gen"]) for r in found] == [(8, 0), (0, 4)]
    for row in found:
        assert row.keys() >= {*LLAMA_BENCH_NAMES, "schema_version", "isa", "mode", "dir_hash"}
        samples = row["samples_ns"]
        assert isinstance(samples, list)
        assert len(samples) == 2
        assert row["avg_ns"] == pytest.approx(sum(samples) / 2, abs=1)


def test_lists_make_the_product(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-p", "4,8", "-n", "2", "-d", "0,4", "-pg", "4,2", "-t", "1,2", "-r", "2", "--json"]
    found = rows([model, *arguments], capsys)
    per_thread = [(4, 0, 0), (8, 0, 0), (0, 2, 0), (4, 2, 0), (4, 0, 4), (8, 0, 4), (0, 2, 4), (4, 2, 4)]
    assert [(r["n_prompt"], r["n_gen"], r["n_depth"]) for r in found] == per_thread * 2
    assert [r["n_threads"] for r in found] == [1] * 8 + [2] * 8


def test_json_lines(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, *SMALL, "-o", "jsonl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["test"] for line in lines] == ["pp8", "tg4"]


def test_csv(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, *SMALL, "-o", "csv"]) == 0
    found = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["n_prompt"] for row in found] == ["8", "0"]
    assert len(json.loads(found[0]["samples_ns"])) == 2


def test_table_shows_spread_and_says_where(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, *SMALL]) == 0
    head, rule, first, second, _, facts = capsys.readouterr().out.splitlines()
    assert head.count("|") == rule.count("|") == first.count("|") == second.count("|") == 8
    assert "pp8" in first
    assert "±" in second
    assert model in facts


def test_one_sample_has_no_spread(model: str) -> None:
    assert main(["bench", model, "-r", "1"]) == 2


def test_nothing_to_measure(model: str) -> None:
    assert main(["bench", model, "-p", "0", "-n", "0"]) == 2


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("The quick brown fox jumps over the lazy dog. " * 12 + "ü")
    return str(path)


def test_ppl_speaks_as_llama_cpp_does(model: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ppl", model, "-f", text, "--ctx", "32", "--chunks", "2"]) == 0
    running, final, method, *_ = capsys.readouterr().out.splitlines()
    assert running.startswith("[1]")
    assert ",[2]" in running
    assert final.startswith("Final estimate: PPL = ")
    assert running.split("[2]")[1] == f"{final.split()[4]},"
    assert "method llama, n_ctx 32, 2 chunks, 30 of " in method


def test_ppl_document(model: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ppl", model, "-f", text, "--ctx", "32", "--json", "--max-bytes", "541"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["text"]["bytes"] == 540  # not half of the last character
    assert document["scored"] == 15 * document["chunks"]
    assert document["value"] == pytest.approx(math.exp(document["nll"]))
    assert document["engine"]["context"] == 32


def test_ppl_of_too_little(model: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ppl", model, "-f", text, "--ctx", "512"]) == 2
    assert "too short" in capsys.readouterr().err

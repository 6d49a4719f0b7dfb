"""``cortiq run`` around a model that says what it is told to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.fake_model import FakeModel, NoFile
from cortiq.cli.main import main
from cortiq.errors import UsageError


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel()
    monkeypatch.setattr("cortiq.cli.models.resolve", lambda *_: Path("fake.cmf"))
    monkeypatch.setattr("cortiq.cli.models.load_model", lambda *_: fake)
    monkeypatch.setattr("sys.stdin", None)
    return fake


def test_the_answer_is_all_of_standard_output(model: FakeModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "fake", "Hi"]) == 0
    assert capsys.readouterr() == ("Hello.\n", "")
    assert model.asked == [("chat", [{"role": "user", "content": "Hi"}], {"max_tokens": 512})]


def test_system_raw_and_prompt_option(model: FakeModel) -> None:
    assert main(["run", "fake", "-p", "Hi", "--system", "Be brief."]) == 0
    assert model.asked[-1][1] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert main(["run", "fake", "Hi", "--raw"]) == 0
    assert model.asked[-1][:2] == ("raw", "Hi")


def test_sampling_options_arrive(model: FakeModel) -> None:
    given = ["--temperature", "0.5", "--top-k", "40", "--top-p", "0.9", "--min-p", "0.05", "--seed", "7", "-n", "9"]
    penalties = [
        "--repetition-penalty",
        "1.1",
        "--presence-penalty",
        "0.1",
        "--frequency-penalty",
        "-0.2",
        "--stop",
        "a",
        "--stop",
        "b",
    ]
    assert main(["run", "fake", "Hi", *given, *penalties]) == 0
    assert model.asked[-1][2] == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.1,
        "frequency_penalty": -0.2,
        "seed": 7,
        "stop": ["a", "b"],
    }


def test_greedy(model: FakeModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "fake", "Hi", "--greedy"]) == 0
    assert model.asked[-1][2] == {"max_tokens": 512, "temperature": 0.0}
    assert main(["run", "fake", "Hi", "--greedy", "--top-p", "0.5"]) == 2
    assert "--top-p" in capsys.readouterr().err


def test_json(model: FakeModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "fake", "Hi", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["text"] == "Hello."
    assert document["tokens"] == [0, 1, 2, 99]
    assert document["finish_reason"] == "stop"
    assert document["timings"]["prompt_tokens"] == 5
    assert document["engine"] == {"isa": "scalar", "mode": "fast", "threads": 1, "context": 64}


@pytest.mark.parametrize("flag", ["--stats", "-v"])
def test_statistics_go_to_standard_error(flag: str, model: FakeModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "fake", "Hi", flag]) == 0
    out, err = capsys.readouterr()
    assert out == "Hello.\n"
    assert "prompt 5 tokens (2 cached), 6.0 tok/s; answer 4 tokens, 1.5 tok/s; finish: stop" in err


def test_a_cut_answer_is_told(model: FakeModel, capsys: pytest.CaptureFixture[str]) -> None:
    model.finish = "length"
    assert main(["run", "fake", "Hi"]) == 0
    assert capsys.readouterr() == ("Hello.\n", "(stopped after 4 tokens)\n")


def test_no_prompt_and_no_terminal(model: FakeModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "fake"]) == 2
    assert "no prompt" in capsys.readouterr().err
    assert not model.asked


def test_prompt_given_twice(model: FakeModel) -> None:
    assert main(["run", "fake", "Hi", "-p", "Ho"]) == 2


def test_unknown_task(model: FakeModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "fake", "Hi", "--task", "law"]) == 2
    assert "law" in capsys.readouterr().err
    model.file = NoFile(b"masks")
    assert main(["run", "fake", "Hi", "--task", "law"]) == 7
    assert not model.asked


def test_interrupted_generation_ends_with_130(model: FakeModel, capsys: pytest.CaptureFixture[str]) -> None:
    model.fails = KeyboardInterrupt()
    assert main(["run", "fake", "Hi"]) == 130
    assert capsys.readouterr() == ("Hello.", "error: interrupted\n")


def test_errors_of_the_engine(model: FakeModel, capsys: pytest.CaptureFixture[str]) -> None:
    model.fails = UsageError("the prompt does not fit", code="context")
    assert main(["run", "fake", "Hi"]) == 2
    assert "does not fit" in capsys.readouterr().err

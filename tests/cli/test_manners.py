"""Manners every command has: help, usage errors, exit codes, streams, colour."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

import cortiq
from cortiq.cli.group import COMMANDS
from cortiq.cli.main import main
from cortiq.errors import HashMismatch, NetworkError, OutOfMemory, Parse, UnsupportedArch

SOURCE = Path(cortiq.__file__).parents[1]


def spawn(arguments: Sequence[str], **more: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-m", "cortiq", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, **more)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_one_screen_with_examples(name: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, flag]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert len(out.splitlines()) <= 50
    assert max(map(len, out.splitlines())) <= 80
    assert "\nExamples:\n" in out
    assert out.startswith(f"Usage: cortiq {name} ")


@pytest.mark.parametrize("name", COMMANDS)
def test_unknown_option_is_a_usage_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--no-such-option"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "no-such-option" in err
    assert f"Try 'cortiq {name} --help' for help.\n" in err


@pytest.mark.parametrize("name", ["info", "verify", "diff", "story", "log", "run", "bench", "ppl", "doctor"])
def test_reading_commands_have_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([name, "--help"])
    assert "--json" in capsys.readouterr().out


def test_no_arguments_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert all(name in out for name in (*COMMANDS, "CORTIQ_HOME", "Exit codes", "Examples"))
    assert not err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cortiq {cortiq.__version__}\n"


@pytest.mark.parametrize(("typo", "meant"), [("inof", "info"), ("verfy", "verify"), ("convrt", "convert")])
def test_unknown_command_suggests(typo: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typo]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert f"Did you mean {meant}" in err
    assert "Try 'cortiq --help' for help." in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Parse("x"), 3),
        (HashMismatch("x"), 4),
        (UnsupportedArch("x"), 7),
        (OutOfMemory("x"), 8),
        (MemoryError(), 8),
        (NetworkError("x"), 9),
        (KeyboardInterrupt(), 130),
        (FileNotFoundError(2, "No such file", "somewhere"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_becomes_its_exit_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("cortiq.cli.models.existing_file", fails)
    assert main(["info", "model.cmf"]) == code
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_missing_model_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(tmp_path / "absent.cmf")]) == 2
    assert "absent.cmf" in capsys.readouterr().err


def test_a_malformed_setting_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORTIQ_THREADS", "many")
    assert main(["doctor", "--no-bandwidth"]) == 2
    assert "CORTIQ_THREADS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "environment", "colored"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_color(
    arguments: list[str],
    environment: dict[str, str],
    colored: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["doctor", "--no-bandwidth", *arguments]) == 0
    assert ("\x1b[" in capsys.readouterr().out) is colored


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"_CORTIQ_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_completion_answers() -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "_CORTIQ_COMPLETE": "bash_complete",
        "COMP_WORDS": "cortiq ver",
        "COMP_CWORD": "1",
    }
    run = subprocess.run(
        [sys.executable, "-c", "from cortiq.cli.main import main; main([])"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.stdout.split() == ["plain,verify"]


def test_a_closed_pipe_is_silent() -> None:
    with spawn(["--help"]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "error: interrupted\n"), (signal.SIGTERM, 143, "")]
)
def test_a_signal_ends_in_order(number: signal.Signals, code: int, said: str) -> None:
    read, write = os.pipe()  # a standard input that never ends
    # Whoever runs the tests in the background may have left the signal ignored.
    default = partial(signal.signal, number, signal.SIG_DFL)
    with spawn(["ppl", "x", "-f", "-"], stdin=read, start_new_session=True, preexec_fn=default) as process:
        assert process.stderr is not None
        assert "waiting for standard input" in process.stderr.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    os.close(read)
    os.close(write)
    assert (process.returncode, out, err) == (code, "", said)


def test_json_documents_have_a_schema_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-bandwidth", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert next(iter(document)) == "schema_version"
    assert document["isa"]["chosen"] in document["isa"]["supported"]
    assert document["threads"]["chosen"] >= 1
    assert document["threads"]["reason"]

"""Options and fixtures every test may use.

A test that cannot run skips with its reason. ``--allowed-skips FILE`` turns every other skip into a failure of the
session: each line of FILE is a pattern for the node id, ``#`` starts a comment.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--models", metavar="DIR", help="folder with real .gguf models")
    parser.addoption("--long", action="store_true", help="crash and concurrency tests in full size")
    parser.addoption("--mutants-from", metavar="SEED", type=int, default=0, help="the first seed of damaged files")
    parser.addoption("--allowed-skips", metavar="FILE", help="fail when a test skips that FILE does not name")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--allowed-skips"):
        config.pluginmanager.register(SkipWatch(config), "skip-watch")


class SkipWatch:
    """Collects skips and judges them at the end."""

    def __init__(self, config: pytest.Config) -> None:
        lines = Path(config.getoption("--allowed-skips")).read_text().splitlines()
        self.patterns = [line.partition("#")[0].strip() for line in lines]
        self.unexpected: list[str] = []

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        if not any(fnmatch.fnmatchcase(report.nodeid, pattern) for pattern in self.patterns if pattern):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.unexpected.append(f"{report.nodeid}: {reason}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.unexpected:
            terminalreporter.section("unexpected skips", red=True)
            for line in self.unexpected:
                terminalreporter.line(line)


@pytest.fixture(params=["scalar", "avx2", "avx512"])
def isa(request: pytest.FixtureRequest) -> str:
    """Each instruction set of the native core; skips those that cannot run here."""
    native = pytest.importorskip("cortiq._native", reason="the native core is not built")
    if request.param not in native.supported_isas():
        pytest.skip(f"this processor has no {request.param}")
    return str(request.param)


@pytest.fixture(scope="session")
def real_gguf(request: pytest.FixtureRequest) -> Path:
    """A real SmolLM2-135M-Instruct GGUF; skips when this machine has none."""
    from builders.real_models import real_gguf_file

    return real_gguf_file(request.config, "*SmolLM2-135M*.gguf")


@pytest.fixture(scope="session")
def real_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct as q4_tiled: the file ``cortiq run smollm2`` keeps, else converted for this session."""
    from cortiq.convert import ConvertOptions, convert
    from cortiq.settings import Settings

    kept = Settings.load().home / "models" / "smollm2-q4_tiled.cmf"
    if kept.exists():
        return kept
    source: Path = request.getfixturevalue("real_gguf")
    output = tmp_path_factory.mktemp("real") / "smollm2.cmf"
    convert(source, output, ConvertOptions(quant="q4_tiled"))
    return output


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Servers on this machine may be asked, without a proxy and without what another test left of the client."""
    import huggingface_hub

    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    huggingface_hub.close_session()
    yield
    huggingface_hub.close_session()

"""Whether a file gets the answer an outcome of the catalogue names."""

from __future__ import annotations

import io
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from cortiq import errors
from cortiq.container import File, Report, copy, open_single, verify
from cortiq.container import open as open_model
from cortiq.container.values import check_values
from cortiq.errors import CortiqError, FormatError, HashMismatch
from hostile.row import Trial

Answer = CortiqError | OSError | None
# What opening a file does not read, but what its rows are about.
LAZY: dict[str, Callable[[File], object]] = {
    "masks": lambda file: file.masks,
    "sparse_index": lambda file: file.sparse_index,
    "skills": lambda file: file.skills,
    "vocab": lambda file: file.tokenizer_json,
}


class Judge:
    """Reads the file at ``path`` the way a trial asks for."""

    def __init__(self, path: Path, trial: Trial, folder: Path) -> None:
        self.path, self.folder = path, folder
        self.case, self.reads, self.says = trial.case, trial.reads, trial.says

    def check(self, outcome: str) -> None:
        """Raise AssertionError unless the outcome holds."""
        tier, *answer = outcome.split(" ")
        {
            "O": self.opening,
            "T": self.first_touch,
            "V": self.verifying,
            "R": self.running,
            "S": self.signature,
            "SI": self.signing,
            "SH": self.shards,
            "W": self.writing,
            "A": self.growing,
            "K": self.adding,
        }[tier](*answer)

    def opening(self, kind: str) -> None:
        error = self.raised(self.open)
        self.compare(error, kind)
        if isinstance(error, FormatError | HashMismatch):
            facts = (error.path, error.section, error.offset, error.expected, error.found)
            assert None not in facts, f"{error!s} lacks a fact: {facts}"
        if kind == "ok" and self.case.holds is not None:
            with self.open() as file:
                assert self.case.holds(file)

    def first_touch(self, kind: str) -> None:
        with self.open() as file:
            found = [self.raised(file[name].validate) for name in file]
            self.compare_all([error for error in found if error is not None], kind)
            self.compare_all(self.report(file).problems, kind)

    def verifying(self, how: str, kind: str = "") -> None:
        if how == "raises":
            with self.open() as file:
                self.compare(self.raised(lambda: self.report(file)), kind)
            return
        with self.open() as file:
            report = self.report(file, how)
        if how in ("strict", "require"):
            self.compare_all(report.problems, kind)
        elif how == "warning":
            self.compare_all(report.problems, "ok")
            matching = [warning for warning in report.warnings if matches(warning, kind)]
            assert matching, f"no warning {kind} among {[str(warning) for warning in report.warnings]}"
            self.compare_all(matching, kind)
        elif how == "values":
            self.compare_all(report.problems, "ok")
            self.compare_all([warning for warning in report.warnings if warning.code == "value"], kind)
        elif how == "unhashed":
            self.compare_all(report.problems, "ok")
            assert kind in report.unhashed
        else:
            self.compare_all(report.problems, how)

    def running(self, kind: str) -> None:
        from cortiq.model.loader import PlanOptions, build_plan

        with self.open() as file:
            self.compare(self.raised(lambda: build_plan(file, PlanOptions(threads=1))), kind)

    def signature(self, kind: str, *arguments: str) -> None:
        self.command(kind, "verify", str(self.path), *arguments)

    def signing(self, kind: str) -> None:
        seed = str(self.path.with_name("seed"))
        expected = "ok" if kind == "warning" else kind
        said = self.command(expected, "sign", str(self.path), "--key", seed)
        assert (kind == "warning") == ("warning: " in said), said

    def command(self, kind: str, *arguments: str) -> str:
        """What the command said, having ended as ``kind`` asks."""
        from cortiq.cli.main import main

        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            code = main(list(arguments))
        said = out.getvalue()
        if kind == "ok":
            assert code == 0, said
        else:
            assert kind in said
            assert code == getattr(errors, kind.partition(".")[0]).exit_code, said
        assert self.says in said
        return said

    def shards(self, kind: str) -> None:
        def opened() -> None:
            with open_model(self.path) as file:
                assert self.case.holds is None or self.case.holds(file)

        before = open_files()
        with room_for(self.case.room):
            error = self.raised(opened)
        self.compare(error, kind)
        assert open_files() == before

    def writing(self, kind: str) -> None:
        with open_single(self.folder / "source.cmf") as file:
            self.compare(self.raised(lambda: copy(file, self.path)), kind)
        if kind == "ok":
            with self.open() as file:
                self.compare_all(self.report(file).problems, "ok")
                assert self.case.holds is None or self.case.holds(file)

    def growing(self, kind: str) -> None:
        from cortiq.container.growth import grow

        self.compare(self.raised(lambda: grow(self.path, header=lambda fields: {**fields, "note": "grown"})), kind)

    def adding(self, kind: str) -> None:
        from cortiq.edit.skills import add_skill, open_skill

        def add() -> None:
            with open_skill(self.path.with_name("skill.cmf")) as source:
                add_skill(self.path, source, overwrite=True)

        self.compare(self.raised(add), kind)

    def open(self) -> File:
        """The file, with what the row is about read."""
        with ExitStack() as stack:
            file = stack.enter_context(open_single(self.path))
            if self.reads in LAZY:
                LAZY[self.reads](file)
            stack.pop_all()
            return file

    def report(self, file: File, how: str = "") -> Report:
        during = self.case.during
        progress = None if during is None else lambda done, total: during(self.path)
        checks = [check_values] if how == "values" else []
        asked = {"strict": how == "strict", "require_hashes": how == "require", "checks": checks}
        return verify(file, threads=1, progress=progress, **asked)

    def raised(self, action: Callable[[], object]) -> Answer:
        """The error of ``action``, which is one of the tree or of the system."""
        try:
            result = action()
        except (CortiqError, OSError) as error:
            return error
        if isinstance(result, File):
            result.close()
        return None

    def compare(self, error: Answer, kind: str) -> None:
        if kind == "ok":
            assert error is None, f"not ok: {error}"
            return
        assert error is not None, f"no error, not {kind}"
        assert matches(error, kind), f"{error}, not {kind}"
        assert str(error).isprintable()
        assert self.says in str(error)

    def compare_all(self, found: Iterable[CortiqError | OSError], kind: str) -> None:
        """One kind, any number of times."""
        found = list(found)
        if kind == "ok":
            assert not found, [str(error) for error in found]
            return
        assert found, f"no problem, not {kind}"
        for error in found:
            self.compare(error, kind)


def open_files() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def room_for(more: int | None) -> Iterator[None]:
    """The process may open ``more`` files than it has open now."""
    if more is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def matches(error: CortiqError | OSError, kind: str) -> bool:
    """Whether ``error`` is of this kind."""
    name = error.kind if isinstance(error, CortiqError) else type(error).__name__
    return name == kind or ("." not in kind and name.partition(".")[0] == kind)

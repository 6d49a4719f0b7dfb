"""Every row of the catalogue of hostile files gets its answer, and the catalogue is whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.cmf import Cmf
from builders.rehash import rehash
from hostile.catalogue import ROWS
from hostile.judge import Judge
from hostile.row import Damaged, Sparse, Trial, exists, trials

SECTIONS = {"A": 27, "B": 23, "C": 35, "D": 21, "E": 12, "F": 16, "G": 4, "H": 14, "I": 11, "J": 10, "K": 10, "L": 5}
TRIALS = [trial for row in ROWS for trial in trials(row)]


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.id)
def test_row(trial: Trial, tmp_path: Path) -> None:
    if trial.needs and not exists(trial.needs):
        pytest.skip(f"waits for cortiq.container.{trial.needs}")
    if trial.case.skip is not None and (reason := trial.case.skip()):
        pytest.skip(reason)
    saved = tmp_path / "bad.cmf"
    made = trial.case.damage(trial.row.base())
    for one in made if isinstance(made, Iterator) else [made]:
        save(one, saved, trial)
        path = saved if trial.case.place is None else trial.case.place(saved)
        judge = Judge(path, trial, tmp_path)
        for outcome in trial.outcomes:
            judge.check(outcome)


def save(made: Damaged, path: Path, trial: Trial) -> None:
    """Write one file of a case, in the variant of the trial."""
    cmf = made.cmf if isinstance(made, Sparse) else made
    if isinstance(cmf, Cmf) and trial.variant == "fixed":
        rehash(cmf, deep=trial.case.deep)
    path.write_bytes(cmf.data if isinstance(cmf, Cmf) else cmf)
    if isinstance(made, Sparse):
        with path.open("r+b") as stream:
            stream.truncate(made.size)


def test_every_row_is_there_once() -> None:
    ids = [row.id for row in ROWS]
    assert ids == [f"{section}{i}" for section, count in SECTIONS.items() for i in range(1, count + 1)]


def test_every_row_has_cases_or_a_reason() -> None:
    assert not [row.id for row in ROWS if not row.later and not any(True for _ in trials(row))]


def test_every_case_is_judged() -> None:
    for row in ROWS:
        judged = {trial.number for trial in trials(row)}
        assert judged == set(range(len(row.cases))), row.id

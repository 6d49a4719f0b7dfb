"""The mutants see mistakes that are put in on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.seeded import BUGS, NATIVE_BUGS, Bug, NativeBug, find

ROOT = Path(__file__).parents[2]
MOST = 5000


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_found(bug: Bug, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.put(monkeypatch)
    assert find(bug, tmp_path / "mutant.cmf", MOST) is not None


@pytest.mark.parametrize("bug", NATIVE_BUGS, ids=lambda bug: bug.name)
def test_native_bugs_can_be_put_in(bug: NativeBug) -> None:
    assert (ROOT / "csrc" / bug.path).read_text().count(bug.old) == 1

"""Says at the end which rows of the catalogue no test answers yet."""

from __future__ import annotations

import pytest

from hostile.catalogue import ROWS
from hostile.row import exists, trials


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Rows left for later, each with what it waits for."""
    terminalreporter.section("rows of the hostile catalogue left for later")
    for row in ROWS:
        waiting = sorted({trial.needs for trial in trials(row) if trial.needs and not exists(trial.needs)})
        reasons = [f"cortiq.container.{module}" for module in waiting] + ([row.later] if row.later else [])
        if reasons:
            terminalreporter.line(f"{row.id:4} {row.what}: {'; '.join(reasons)}")

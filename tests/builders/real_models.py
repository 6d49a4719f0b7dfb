"""Real GGUF models on this machine: where ``--models`` points, else where the package and its tools keep them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cortiq.settings import Settings

__all__ = ["real_gguf_file"]


def real_gguf_file(config: pytest.Config, pattern: str) -> Path:
    """The model whose file name matches ``pattern``; skips the test when it is not here."""
    given = config.getoption("--models")
    folders = [Path(given)] if given else [Settings.load().home / "sources", Path.home() / ".cache" / "cortiq-models"]
    for folder in folders:
        for path in sorted(folder.glob(f"**/{pattern}")):
            return path
    pytest.skip(f"no {pattern} on this machine; --models names a folder that has it")

from __future__ import annotations

import sys

import pytest

import cortiq
from cortiq.errors import NativeMissing
from cortiq.layouts import native


def test_a_missing_core_names_its_build_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cortiq, "_native", raising=False)
    monkeypatch.setitem(sys.modules, "cortiq._native", None)
    with pytest.raises(NativeMissing, match=r"tools/build_native\.sh"):
        native.native()

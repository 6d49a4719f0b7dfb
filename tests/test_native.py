from __future__ import annotations

import importlib
import sys

import pytest

import cortiq
from cortiq.errors import NativeMissing


def test_a_missing_core_names_its_build_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cortiq, "_native", raising=False)
    monkeypatch.setitem(sys.modules, "cortiq._native", None)
    monkeypatch.delitem(sys.modules, "cortiq.native", raising=False)
    with pytest.raises(NativeMissing, match=r"pip install \. .*tools/build_native\.sh"):
        importlib.import_module("cortiq.native")

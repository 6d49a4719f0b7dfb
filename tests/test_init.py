"""The public names, and that importing the package imports little."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cortiq


def test_every_public_name_exists() -> None:
    for name in cortiq.__all__:
        assert getattr(cortiq, name) is not None
    assert dir(cortiq) == sorted(cortiq.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = cortiq.nothing


def test_importing_is_light() -> None:
    code = (
        "import sys, cortiq; cortiq.errors; print(*[m for m in ('numpy', 'tokenizers', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

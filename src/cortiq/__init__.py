"""cortiq: the Cortiq Model Format (CMF v2) as a file, a converter and an engine.

Everything public is loaded on first use (PEP 562), so that ``import cortiq`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cortiq.container import open
    from cortiq.engine import load

__version__ = "0.1.0"
__all__ = ["__version__", "load", "open"]


def __getattr__(name: str) -> Any:
    match name:
        case "open":
            return import_module("cortiq.container").open
        case "load":
            return import_module("cortiq.engine").load
    raise AttributeError(f"module 'cortiq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

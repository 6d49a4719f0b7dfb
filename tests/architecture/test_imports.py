"""Imports point downwards (docs/structure.md). TYPE_CHECKING blocks and imports inside functions count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "cortiq"

RANK = {
    "errors": 0, "settings": 0, "native": 0, "_native": 0,
    "layouts": 1, "container": 2, "ops": 3, "text": 4, "quantize": 5, "convert": 5, "edit": 6, "model": 6,
    "engine": 7, "report": 8, "image": 8, "cli": 9, "server": 9,
}  # fmt: skip
FLOOR = {name for name, rank in RANK.items() if rank == 0}
SIDEWAYS = {("convert", "quantize"), ("edit", "convert"), ("edit", "quantize"), ("edit", "model")}
NARROW = {"errors": set(), "settings": {"errors"}, "native": {"errors", "_native"}, "text": {"errors"}}


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names of everything below ``cortiq`` that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            if node.module == "cortiq":
                yield from (f"cortiq.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in (
            "import_module",
            "__import__",
        ):
            yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def allowed(importer: str, target: str) -> bool:
    if target == "__version__" or importer == target:
        return True
    if importer in NARROW:
        return target in NARROW[importer]
    return target in RANK and ((importer, target) in SIDEWAYS or RANK[target] < RANK[importer])


MODULES = sorted(p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or p.stem in RANK)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    importer = package_of(path)
    assert importer in RANK, f"{importer} has no place in the order of layers"
    names = [n.split(".") for n in imported(ast.parse(path.read_text())) if n == "cortiq" or n.startswith("cortiq.")]
    assert ["cortiq"] not in names, "the root package is for users; import the module that owns the name"
    upward = [".".join(n) for n in names if not allowed(importer, n[1])]
    assert not upward


def test_the_order_is_one() -> None:
    assert all(RANK[a] >= RANK[b] for a, b in SIDEWAYS)
    assert not {(b, a) for a, b in SIDEWAYS} & SIDEWAYS


@pytest.mark.parametrize(
    ("importer", "code", "ok"),
    [
        ("layouts", "from cortiq.container import open", False),
        ("container", "from cortiq.layouts.registry import layout", True),
        ("text", "from cortiq.ops import norm", False),
        ("model", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cortiq.engine import Model", False),
        ("ops", "def f():\n    from importlib import import_module\n    import_module('cortiq.cli.main')", False),
        ("convert", "from cortiq.quantize import policy", True),
        ("quantize", "from cortiq.convert import pipeline", False),
    ],
)
def test_the_walk_sees(importer: str, code: str, ok: bool) -> None:
    names = [n.split(".")[1] for n in imported(ast.parse(code)) if n.startswith("cortiq.")]
    assert names
    assert all(allowed(importer, name) for name in names) is ok

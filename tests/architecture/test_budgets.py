"""Size budgets: files up to 400 lines, functions up to 60 lines and 7 parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES = 400
FUNCTION_LINES = 60
PARAMETERS = 7
GENERATED = {"_native.pyi"}
# Every fact an error carries is a keyword of the root class; splitting them would hide the contract.
WIDE = {"src/cortiq/errors.py:CortiqError.__init__"}

PYTHON = sorted(p for d in ("src", "tests", "bench", "tools") for p in (ROOT / d).rglob("*.py"))
NATIVE = sorted(p for s in ("*.h", "*.cpp") for p in (ROOT / "csrc").rglob(s))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
        inner = f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix
        yield from functions(node, inner)


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(a.arg not in ("self", "cls") for a in given)


def native_blocks(text: str) -> Iterator[tuple[int, int]]:
    """First and last line of every function body that starts and ends in the first column."""
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"[A-Za-z].*\)[^;]*\{$", line) and not re.match(r"(namespace|struct|class|enum|union)\b", line):
            start = number
        elif line.startswith("}") and start:
            yield start, number
            start = 0


@pytest.mark.parametrize("path", [*PYTHON, *NATIVE], ids=name)
def test_file(path: Path) -> None:
    if path.name not in GENERATED:
        assert len(path.read_text().splitlines()) <= FILE_LINES


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_python_functions(path: Path) -> None:
    for label, node in functions(ast.parse(path.read_text())):
        assert node.end_lineno is not None
        assert node.end_lineno - node.lineno + 1 <= FUNCTION_LINES, f"{label} is too long"
        in_test = path.is_relative_to(ROOT / "tests")  # a test's parameters are the names of its fixtures
        if not in_test and f"{name(path)}:{label}" not in WIDE:
            assert parameters(node) <= PARAMETERS, f"{label} has too many parameters"


@pytest.mark.parametrize("path", NATIVE, ids=name)
def test_native_functions(path: Path) -> None:
    long = [start for start, end in native_blocks(path.read_text()) if end - start + 1 > FUNCTION_LINES]
    assert not long, f"functions at lines {long} are too long"

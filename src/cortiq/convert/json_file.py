"""JSON objects of a checkpoint's side files."""

from __future__ import annotations

import json
from pathlib import Path

from cortiq.errors import SourceError


def read_json(path: Path) -> dict[str, object]:
    """The object in ``path``. Raises SourceError naming the file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SourceError(f"there is no {path.name}", code="missing_file", path=str(path.parent)) from error
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{path.name} cannot be read: {error}", code="json", path=str(path.parent)) from error
    if not isinstance(found, dict):
        raise SourceError(f"{path.name} does not hold an object", code="json", path=str(path.parent))
    return found


def optional_json(path: Path) -> dict[str, object]:
    """The object in ``path``, empty when there is no such file. Raises SourceError."""
    return read_json(path) if path.exists() else {}

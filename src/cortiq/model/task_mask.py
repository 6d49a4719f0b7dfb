"""Which task mask a file asks for (SPEC 5). Masks are not applied yet: a file whose default mask restricts anything is
refused, one that is fully open or names no mask runs as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cortiq.errors import UnsupportedArch

if TYPE_CHECKING:
    from cortiq.container import File


def check_default_mask(file: File) -> None:
    """Returns when nothing is to be masked.

    Raises UnsupportedArch (``mask``) naming the task whose mask would restrict the model.
    """
    mask = None if file.masks is None else file.masks.default
    if mask is not None and not mask.is_open:
        raise UnsupportedArch(
            "a mask that restricts the model is not supported",
            code="mask",
            path=str(file.path),
            section="masks",
            found=mask.name,
        )

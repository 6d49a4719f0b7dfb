"""Sizes of payloads in checked arithmetic, and the shapes a dtype may have (SPEC 3, 3.2).

Every byte count of a tensor is computed here or from what is returned here. Nothing reads a payload.
"""

from __future__ import annotations

from collections.abc import Sequence

from cortiq.errors import Bounds, Parse

GROUP = 32
MAX_NDIM = 6
_MAX_DIM = 2**32 - 1
_LIMIT = 2**63

Shape = Sequence[int]


def checked(nbytes: int) -> int:
    """``nbytes`` if a signed 64-bit offset can hold it, else ``Bounds.size_overflow``."""
    if nbytes >= _LIMIT:
        raise Bounds("a size of 2^63 or more", code="size_overflow", found=nbytes)
    return nbytes


def element_count(shape: Shape) -> int:
    """Number of elements of a tensor of any shape; 1 for a scalar.

    Raises Parse.ndim for more than six dimensions and Bounds.size_overflow for a dimension beyond 32 bits or a
    product of 2^63 or more.
    """
    if len(shape) > MAX_NDIM:
        raise Parse("too many dimensions", code="ndim", expected=f"at most {MAX_NDIM}", found=len(shape))
    count = 1
    for dim in shape:
        if not 0 <= dim <= _MAX_DIM:
            raise Bounds("a dimension does not fit 32 bits", code="size_overflow", found=dim)
        count *= dim
    return checked(count)


def flat(shape: Shape, name: str) -> int:
    """Element count of a dtype that quantizes the flattened tensor: any dimensions, none of them zero.

    Raises Parse.ndim for a scalar, Parse.zero_dim for an empty tensor, and what ``element_count`` raises.
    """
    count = element_count(shape)
    _refuse_scalar(shape, name)
    _refuse_empty(shape, name)
    return count


def matrix(shape: Shape, name: str) -> tuple[int, int]:
    """(rows, cols) of a dtype that exists for matrices only.

    Raises Parse.ndim for a scalar, Parse.ndim_dtype for other than two dimensions, Parse.zero_dim for an empty
    matrix, and what ``element_count`` raises.
    """
    element_count(shape)
    _refuse_not_matrix(shape, name)
    _refuse_empty(shape, name)
    return shape[0], shape[1]


def grouped_matrix(shape: Shape, name: str) -> tuple[int, int]:
    """(rows, groups per row) of a dtype whose rows are whole groups of 32.

    Raises Parse.in_mod_32 for columns that are not, and what ``matrix`` raises.
    """
    element_count(shape)
    _refuse_not_matrix(shape, name)
    cols = shape[1]
    if cols == 0 or cols % GROUP:
        raise Parse(f"{name} needs columns in groups of 32", code="in_mod_32", expected="a multiple of 32", found=cols)
    _refuse_empty(shape, name)
    return shape[0], cols // GROUP


def rows_and_cols(shape: Shape) -> tuple[int, int]:
    """A tensor seen as a matrix: the first dimension by the product of the others; one row below two dimensions."""
    if len(shape) < 2:
        return 1, element_count(shape)
    return shape[0], element_count(shape[1:])


def ceil_div(count: int, by: int) -> int:
    """``count / by`` rounded up."""
    return -(-count // by)


def _refuse_scalar(shape: Shape, name: str) -> None:
    if len(shape) == 0:
        raise Parse(f"{name} cannot hold a scalar", code="ndim", found=0)


def _refuse_not_matrix(shape: Shape, name: str) -> None:
    _refuse_scalar(shape, name)
    if len(shape) != 2:
        raise Parse(f"{name} holds matrices only", code="ndim_dtype", expected="2 dimensions", found=len(shape))


def _refuse_empty(shape: Shape, name: str) -> None:
    if 0 in shape:
        raise Parse(f"{name} cannot hold an empty tensor", code="zero_dim", found=tuple(shape))

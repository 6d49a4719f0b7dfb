"""The one table of dtypes: directory id to layout (SPEC 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cortiq.errors import Parse
from cortiq.layouts.base import Layout
from cortiq.layouts.bf16 import BF16
from cortiq.layouts.f16 import F16
from cortiq.layouts.f32 import F32
from cortiq.layouts.q1 import Q1, Q1P
from cortiq.layouts.q1s import Q1S
from cortiq.layouts.q1t import Q1T
from cortiq.layouts.q4_block import Q4Block
from cortiq.layouts.q4_tiled import Q4Tiled
from cortiq.layouts.q8_2f import Q82F
from cortiq.layouts.q8_row import Q8Row
from cortiq.layouts.sizes import Shape
from cortiq.layouts.u8 import U8
from cortiq.layouts.undecoded import Q2TP, Q4TP, Vbit, VbitRo

_ALL: tuple[type[Layout], ...] = (
    F32, F16, BF16, Q8Row, Q4Block, U8, Vbit, Q82F, VbitRo, Q4Tiled, Q1, Q1S, Q1T, Q4TP, Q2TP,
)  # fmt: skip

LAYOUTS: Mapping[int, Layout] = MappingProxyType({kind.id: kind() for kind in _ALL})
"""Every dtype a file may hold. The ids 5 (mix8_4) and 7 (q4_col) are reserved and undefined: not here."""

DTYPE_NAMES: Mapping[int, str] = MappingProxyType({number: entry.name for number, entry in LAYOUTS.items()})

ENCODINGS: tuple[Layout, ...] = (Q1P(),)
"""Further ways to encode a dtype of the table, under names of their own."""

_BY_NAME: Mapping[str, Layout] = MappingProxyType({entry.name: entry for entry in (*LAYOUTS.values(), *ENCODINGS)})


def layout(dtype: int | str) -> Layout:
    """The layout of a dtype given by id, by the name of SPEC 3.1, or by a name of ``ENCODINGS``.

    Raises Parse.dtype for any other.
    """
    found = LAYOUTS.get(dtype) if isinstance(dtype, int) else _BY_NAME.get(dtype)
    if found is None:
        raise Parse("unknown dtype", code="dtype", expected=", ".join(_BY_NAME), found=dtype)
    return found


def check_tensor(dtype: int, shape: Shape, nbytes: int) -> None:
    """What opening a file checks of one directory record: dtype, shape and size fit each other.

    Raises Parse (codes ``dtype``, ``ndim``, ``ndim_dtype``, ``in_mod_32``, ``zero_dim``, ``q1s_too_large``,
    ``q1t_cols``) and Bounds (``nbytes``, ``size_overflow``).
    """
    layout(dtype).check_nbytes(shape, nbytes)

"""How each dtype lies in bytes (SPEC 3.2): sizes, validation, encoders, decoders."""

from cortiq.layouts.base import ENCODERS, Encoder, Layout, Plane
from cortiq.layouts.registry import DTYPE_NAMES, LAYOUTS, check_tensor, layout

__all__ = ["DTYPE_NAMES", "ENCODERS", "LAYOUTS", "Encoder", "Layout", "Plane", "check_tensor", "layout"]

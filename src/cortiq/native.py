"""The native core, or an error that says how to build it. Importing this module needs the core; ``container`` and
``layouts`` do so only inside the functions that cannot do without.
"""

from __future__ import annotations

from cortiq.errors import NativeMissing

try:
    from cortiq import _native as core
except ImportError as error:
    raise NativeMissing(
        "the native core is not built; pip install . builds it, tools/build_native.sh in a checkout", code="native"
    ) from error

__all__ = ["core"]

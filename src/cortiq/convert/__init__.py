"""From a checkpoint to a CMF file: sources, names, families, the pipeline (SPEC 2, 3, 6)."""

from cortiq.convert.options import ConvertOptions, Progress, parse_end, parse_overrides
from cortiq.convert.pipeline import convert
from cortiq.convert.receipt import Receipt

__all__ = ["ConvertOptions", "Progress", "Receipt", "convert", "parse_end", "parse_overrides"]

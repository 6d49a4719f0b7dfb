"""Which dtype each tensor of a model gets (SPEC 3.1, 11)."""

from cortiq.quantize.dtypes import QUANT_TYPES, bits_per_weight, parse_dtype
from cortiq.quantize.policy import Choice, Override, Policy, parse_override
from cortiq.quantize.vbit_budget import VbitBudget, read_route_stats

__all__ = [
    "QUANT_TYPES",
    "Choice",
    "Override",
    "Policy",
    "VbitBudget",
    "bits_per_weight",
    "parse_dtype",
    "parse_override",
    "read_route_stats",
]

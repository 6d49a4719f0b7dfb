"""The one table of model families."""

from cortiq.convert.families.base import TOP_RULES, Family, TensorRule
from cortiq.convert.families.gemma3 import GEMMA3
from cortiq.convert.families.llama import LLAMA
from cortiq.convert.families.mistral import MISTRAL
from cortiq.convert.families.qwen2 import QWEN2
from cortiq.errors import UnsupportedArch

FAMILIES: tuple[Family, ...] = (LLAMA, MISTRAL, QWEN2, GEMMA3)

__all__ = ["FAMILIES", "TOP_RULES", "Family", "TensorRule", "family_of_architecture", "family_of_model_type"]


def family_of_model_type(model_type: object) -> Family:
    """The family of a config.json. Raises UnsupportedArch.model_type."""
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.model_types)
    raise UnsupportedArch("this model_type cannot be converted", code="model_type", expected=known, found=model_type)


def family_of_architecture(architecture: object) -> Family:
    """The family of a GGUF. Raises UnsupportedArch.architecture."""
    for family in FAMILIES:
        if architecture in family.gguf_architectures:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.gguf_architectures)
    raise UnsupportedArch(
        "this architecture cannot be converted", code="architecture", expected=known, found=architecture
    )

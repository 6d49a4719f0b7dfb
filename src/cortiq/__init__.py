"""cortiq: the Cortiq Model Format (CMF v2) as a file, a converter and an engine.

``open`` gives a file to look into, ``load`` a model to run. What is named here is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cortiq import errors
    from cortiq.container import File, Tensor, TensorEntry, open
    from cortiq.engine.model import Model, load
    from cortiq.engine.perplexity import Perplexity, perplexity
    from cortiq.engine.results import Chunk, Generation, Timings, TokenLogprob
    from cortiq.engine.sampler import SamplingParams
    from cortiq.errors import CortiqError
    from cortiq.text.chat_template import ChatTemplate
    from cortiq.text.tokenizer import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "ChatTemplate",
    "Chunk",
    "CortiqError",
    "File",
    "Generation",
    "Model",
    "Perplexity",
    "SamplingParams",
    "Tensor",
    "TensorEntry",
    "Timings",
    "TokenLogprob",
    "Tokenizer",
    "__version__",
    "errors",
    "load",
    "open",
    "perplexity",
]

_HOMES = {
    "ChatTemplate": "cortiq.text.chat_template",
    "Chunk": "cortiq.engine.results",
    "CortiqError": "cortiq.errors",
    "File": "cortiq.container",
    "Generation": "cortiq.engine.results",
    "Model": "cortiq.engine.model",
    "Perplexity": "cortiq.engine.perplexity",
    "SamplingParams": "cortiq.engine.sampler",
    "Tensor": "cortiq.container",
    "TensorEntry": "cortiq.container",
    "Timings": "cortiq.engine.results",
    "TokenLogprob": "cortiq.engine.results",
    "Tokenizer": "cortiq.text.tokenizer",
    "load": "cortiq.engine.model",
    "open": "cortiq.container",
    "perplexity": "cortiq.engine.perplexity",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("cortiq.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'cortiq' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

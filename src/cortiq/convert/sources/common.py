"""What the sources of all kinds settle in the same way, once their tensors are placed."""

from __future__ import annotations

import numpy as np

from cortiq.convert.source import SourceTensor
from cortiq.errors import MissingTensor, UnsupportedArch

_EMBEDDING = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"
_COMPARE_ROWS = 4096


def drop_zero_biases(tensors: dict[str, SourceTensor]) -> list[str]:
    """Take out the biases that can only be executed as zero. Raises UnsupportedArch for one that is not."""
    dropped = 0
    for name, tensor in list(tensors.items()):
        if not tensor.rule.zero:
            continue
        if np.any(tensor.read(0, 1).astype(np.float32)):
            raise UnsupportedArch(
                "a bias of the output projection can be converted only when it is zero",
                code="tensor",
                tensor=tensor.source_name,
            )
        del tensors[name]
        dropped += 1
    return [f"left out {dropped} biases of output projections: all of them are zero"] if dropped else []


def settle_tying(tensors: dict[str, SourceTensor], arch: dict[str, object]) -> list[str]:
    """Settle ``tie_word_embeddings``: a stored head always wins in a CMF file, so a tied one must not be stored.

    A head that differs from the embedding of a tied model is kept and the model is untied, as transformers does.
    Raises MissingTensor for an untied model without a head.
    """
    head = tensors.get(_HEAD)
    if not arch["tie_word_embeddings"]:
        if head is None:
            raise MissingTensor("the embeddings are not tied and there is no head", code="tensor", tensor=_HEAD)
        return []
    if head is None:
        return []
    if _same(tensors[_EMBEDDING], head):
        del tensors[_HEAD]
        return [f"{head.source_name} is a copy of the embedding, with which it is tied: stored once"]
    arch["tie_word_embeddings"] = False
    return [f"{head.source_name} differs from the embedding although they are tied: stored as the head"]


def _same(first: SourceTensor, second: SourceTensor) -> bool:
    rows = first.matrix_shape[0]
    for start in range(0, rows, _COMPARE_ROWS):
        stop = min(start + _COMPARE_ROWS, rows)
        equal = np.array_equal(first.read(start, stop), second.read(start, stop))
        first.release(start, stop)
        second.release(start, stop)
        if not equal:
            return False
    return True

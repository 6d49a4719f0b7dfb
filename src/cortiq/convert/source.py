"""What a pipeline reads from: a checkpoint of any kind, already in canonical names and terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from cortiq.convert.families import TensorRule

Block = NDArray[Any]


class SourceTensor(ABC):
    """A tensor of a source, read in blocks of rows (a 1-D tensor is one row).

    ``name``         canonical name
    ``source_name``  name in the source
    ``shape``        as it will be written
    ``nbytes``       bytes it takes in the source
    ``rule``         its row of the family's table
    """

    __slots__ = ("name", "nbytes", "rule", "shape", "source_name")

    def __init__(self, name: str, source_name: str, shape: tuple[int, ...], nbytes: int, rule: TensorRule) -> None:
        self.name = name
        self.source_name = source_name
        self.shape = shape
        self.nbytes = nbytes
        self.rule = rule

    @abstractmethod
    def read(self, first: int, last: int) -> Block:
        """Rows first to last (exclusive) as f32, f16 or bf16 [rows, cols]. May be called from any thread."""

    @abstractmethod
    def release(self, first: int, last: int) -> None:
        """Tells the system that the pages of these rows are not needed again."""

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """(rows, cols): a vector is one row."""
        return (1, self.shape[0]) if len(self.shape) == 1 else (self.shape[0], self.shape[1])

    def spans(self, weights: int, unit: int = 1) -> Iterator[tuple[int, int]]:
        """Blocks of rows, first to last (exclusive), of about so many weights, that begin on multiples of ``unit``."""
        rows, cols = self.matrix_shape
        step = max(weights // cols // unit, 1) * unit
        for first in range(0, rows, step):
            yield first, min(first + step, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model to be converted. A context manager: leaving it closes the mapped files.

    ``kind``              "huggingface" or "gguf"
    ``name``              name of the folder or file, without its path
    ``arch``              the header's ``arch``
    ``tensors``           in the order they are to be written
    ``tokenizer_json``    bytes of tokenizer.json
    ``tokenizer_config``  the header's ``tokenizer_config``
    ``generation``        the header's ``generation_config``, or None
    ``notes``             what the receipt has to say about this source
    ``stamps``            by name of each file with weights, a text that changes when the file does
    """

    kind: str
    name: str
    arch: Mapping[str, object]
    tensors: tuple[SourceTensor, ...]
    tokenizer_json: bytes | None
    tokenizer_config: Mapping[str, object]
    generation: Mapping[str, object] | None
    notes: tuple[str, ...]
    stamps: Mapping[str, str]
    closers: tuple[Any, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the files. Blocks that were read stay valid only if they are copies."""
        for closer in self.closers:
            closer.close()

"""Another dtype for the matrices of a CMF file (SPEC 3.2): decoded and encoded again in blocks of rows.

What does not change is carried over byte for byte: tensors that have their dtype already, vectors and small matrices,
masks, tokenizer, skills, and header fields. The header says the new ``quant_type``, and in ``provenance.requant`` what
was done. A hash that the file states is checked before its bytes are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cortiq.container import File, Header, TensorSpec
from cortiq.container.digest import is_digest_tensor
from cortiq.container.hash64 import Buffer
from cortiq.convert.encode import EncodePool
from cortiq.convert.options import ConvertOptions, Progress
from cortiq.convert.plan import Planned, columns_note, weighed, with_sizes
from cortiq.convert.receipt import Receipt, make_receipt
from cortiq.convert.resume import write_model
from cortiq.convert.sources.cmf import CmfSource, CmfTensor, open_cmf
from cortiq.errors import CortiqError, UsageError
from cortiq.layouts import layout
from cortiq.quantize import QUANT_TYPES, Policy
from cortiq.quantize.policy import is_small

_TOOL = "cortiq requant"
_VARIABLE = "vbit_ro"


def requant(source: Path, output: Path | None, options: ConvertOptions, *, progress: Progress | None = None) -> Receipt:
    """Write the model at ``source`` with other dtypes to ``output``; None replaces the file itself.

    Of ``options``, dtypes, ``encoder``, bits, ``threads``, ``force`` and ``resume`` count. A tensor that has the dtype
    asked for is kept, except vbit when ``mean_bits`` or ``route_counts`` are given. A matrix whose columns a dtype
    cannot have is kept too, with a note in the receipt.

    The output appears complete or not at all; ``resume`` goes on with an interrupted attempt, to the same bytes. Raises
    what ``cortiq.open`` and ``write_file`` raise, UsageError (``exists`` unless ``force``, ``signed`` for
    replacing a file that has a signature, ``shards`` for replacing files of a set, ``resume`` for an attempt that was
    begun with something else), Busy, HashMismatch, NonFinite, NativeMissing.
    """
    target = _checked_output(source, output, options)
    with open_cmf(source) as opened:
        _check_parts(opened.file, target)
        planned = plan_requant(opened, options)
        encoded = [entry for entry in planned if not entry.kept]
        with EncodePool(encoded, options, progress) as pool:
            notes = write_model(
                target,
                requant_header(opened.file.header, options),
                [_spec(entry, pool) for entry in planned],
                opened,
                options,
                vocab=opened.tokenizer_json,
                masks=opened.file.section("masks"),
                index=opened.file.section("index"),
            )
        return make_receipt(opened, planned, notes, [target])


def plan_requant(source: CmfSource, options: ConvertOptions) -> list[Planned]:
    """What becomes of each tensor. Digests of the old bytes are left out.

    Raises UsageError for a tensor rule that matches nothing, Parse or Bounds for content that cannot be decoded and for
    a rule that a shape does not allow.
    """
    tensors = [tensor for tensor in source.entries if not is_digest_tensor(tensor.name)]
    policy = options.policy(tensor.name for tensor in tensors)
    again = options.mean_bits is not None or options.route_counts is not None
    return with_sizes([_planned(tensor, policy, again) for tensor in tensors], options)


def _planned(tensor: CmfTensor, policy: Policy, again: bool) -> Planned:
    """``again``: vbit is encoded even where it is vbit."""
    kept = Planned(tensor, tensor.dtype, tensor.nbytes, kept=True)
    if tensor.dtype == "u8":
        return kept
    choice = policy.choose(tensor.name, tensor.shape)
    if not choice.forced and is_small(tensor.name, tensor.shape):
        return kept
    if choice.wanted is not None:
        note = f"{tensor.name}: {tensor.dtype} as before, its {columns_note(tensor)}"
        return Planned(tensor, tensor.dtype, tensor.nbytes, note, kept=True)
    if layout(choice.dtype).id == tensor.entry.dtype and not (again and choice.dtype == _VARIABLE):
        return kept
    try:
        tensor.validate()
        dtype = weighed(tensor) if choice.weigh else choice.dtype
        if choice.weigh and dtype == tensor.dtype:
            return kept
        return Planned(tensor, dtype, layout(dtype).payload_nbytes(tensor.shape))
    except CortiqError as error:
        error.tensor = tensor.name
        raise


def requant_header(header: Header, options: ConvertOptions) -> dict[str, Any]:
    """The header of the new file, to which the writer adds section hashes."""
    fields = header.to_dict()
    before = fields.get("provenance")
    done = {"tool": _TOOL, "from": header.quant_type, "options": options.record()}
    provenance = dict(before) if isinstance(before, dict) else {} if before is None else {"source": before}
    earlier = provenance.get("requant")
    provenance["requant"] = [*(earlier if isinstance(earlier, list) else []), done]
    fields.pop("shard", None)
    return {**fields, "quant_type": QUANT_TYPES[options.quant], "provenance": provenance}


def _spec(entry: Planned, pool: EncodePool) -> TensorSpec:
    tensor = entry.tensor
    assert isinstance(tensor, CmfTensor)
    chunks = tensor.pieces() if entry.kept else _encoded(entry, tensor, pool)
    return TensorSpec(tensor.name, layout(entry.dtype).id, tensor.shape, entry.nbytes, chunks)


def _encoded(entry: Planned, tensor: CmfTensor, pool: EncodePool) -> Iterator[Buffer]:
    """The new payload, once the old one has been found to be what was hashed."""
    for _ in tensor.pieces():
        pass
    yield from pool.chunks(entry)
    tensor.forget()


def _check_parts(file: File, target: Path) -> None:
    """The new file takes the place of none of a set it is made from."""
    if any(target.exists() and target.samefile(part.path) for part in file.parts):
        raise UsageError("the new file is the whole model: write it beside the set", code="shards", path=str(target))


def _checked_output(source: Path, output: Path | None, options: ConvertOptions) -> Path:
    target = source.resolve() if output is None else output
    in_place = target.exists() and source.exists() and target.samefile(source)
    if output is not None and in_place:
        raise UsageError("source and output are the same", code="exists", path=str(output))
    if output is not None and output.exists() and not options.force:
        raise UsageError("the output exists already", code="exists", path=str(output))
    signature = target.with_name(target.name + ".sig")
    if in_place and signature.exists():
        raise UsageError(
            "the file is signed: write to another file, or remove the signature",
            code="signed",
            path=str(signature),
        )
    return target

"""``cortiq masks``: the task masks of a file, and what each leaves active."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, json_option, pass_console
from cortiq.errors import printable

if TYPE_CHECKING:
    from cortiq.container import File, Mask, MaskSet

EPILOG = """
cortiq masks model.cmf
cortiq masks model.cmf --json | jq '.masks[].name'
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@json_option
@pass_console
def masks(console: Console, model: str, as_json: bool) -> None:
    """List the task masks of the .cmf file MODEL.

    A mask selects neurons, heads, layers and experts; the weights stay as they are. The sparsity is what the file
    states, the shares that are off are counted.
    """
    from cortiq.cli.models import readable_file
    from cortiq.container import open

    with open(readable_file(model)) as file:
        if as_json:
            console.json(describe_masks(file))
        elif not file.masks:
            console.line(f"no masks in {printable(str(file.path))}")
        else:
            _print(console, file.masks)


def describe_masks(file: File) -> dict[str, Any]:
    """The masks as a JSON document."""
    found = file.masks
    return {
        "path": str(file.path),
        "default_task": None if found is None else found.default_task,
        "masks": [] if found is None else [_record(mask) for mask in found.values()],
    }


def _record(mask: Mask) -> dict[str, Any]:
    info, quality = mask.info, mask.info.quality
    return {
        "task_id": info.task_id,
        "name": info.name,
        "description": info.description,
        "priority": info.priority,
        "parent": info.parent,
        "sparsity": info.sparsity,
        "quality": None
        if quality is None
        else {
            "metric": quality.metric,
            "value": quality.value,
            "baseline_dense": quality.baseline_dense,
            "n_samples": quality.n_samples,
            "dataset_sha256": quality.dataset_sha256,
        },
        "has_hot_pack": info.has_hot_pack,
        "has_expert_fields": info.has_expert_fields,
        "restricts": not mask.is_open,
        "num_layers": mask.gates.size,
        "active_layers": mask.active_layers,
        "inactive": mask.inactive_shares(),
    }


def _print(console: Console, found: MaskSet) -> None:
    rows = []
    for mask in found.values():
        info, off = mask.info, mask.inactive_shares()
        quality = "unmeasured" if info.quality is None else f"{info.quality.value:.3f} ({info.quality.metric})"
        shares = [f"{off[area]:.1%}" if area in off else "-" for area in ("ffn", "heads", "experts")]
        layers = f"{mask.active_layers}/{mask.gates.size}"
        default = "default" if info.name == found.default_task else info.priority.lower()
        cells = (info.name, default, f"{info.sparsity:.0%}", *shares, layers, quality)
        rows.append([printable(cell) for cell in cells])
    head = ["mask", "role", "sparsity", "neurons off", "heads off", "experts off", "layers", "quality"]
    console.table(head, rows, right=(2, 3, 4, 5, 6))
    if found.default is None:
        console.note(f"the default task {printable(found.default_task)!r} has no mask: without a choice none is used")

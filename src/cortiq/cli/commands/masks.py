"""``cortiq masks``: the task masks of a file, what each leaves active, and how they get in and out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, Group, in_place, in_place_options, json_option, option, pass_console
from cortiq.errors import printable

if TYPE_CHECKING:
    from cortiq.container import File, Mask, MaskSet

EPILOG = """
cortiq masks model.cmf
cortiq masks add model.cmf code --from code.json
cortiq masks remove model.cmf code
"""
LIST_EPILOG = """
cortiq masks model.cmf
cortiq masks model.cmf --json | jq '.masks[].name'
"""
ADD_EPILOG = """
cortiq masks add model.cmf code --from code.json
cortiq masks add model.cmf code --from other.cmf --replace --default
"""
REMOVE_EPILOG = """
cortiq masks remove model.cmf code
cortiq masks remove model.cmf code --default general
"""


@click.group(cls=Group, default="list", epilog=EPILOG)
@pass_console
@click.pass_context
def masks(ctx: click.Context, console: Console) -> None:
    """Task masks: which neurons, heads, layers and experts a task uses.

    With a .cmf file in the place of COMMAND its masks are listed.
    """
    if ctx.invoked_subcommand is None:
        console.write(ctx.get_help() + "\n")


@masks.command("list", cls=Command, epilog=LIST_EPILOG, short_help="List the task masks of a .cmf file.")
@click.argument("model")
@json_option
@pass_console
def list_masks(console: Console, model: str, as_json: bool) -> None:
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


@masks.command("add", cls=Command, epilog=ADD_EPILOG, short_help="Add a task mask in place.")
@click.argument("model")
@click.argument("name")
@option("--from", "source", metavar="SOURCE", required=True, help="A mask as JSON, or a .cmf file that has it.")
@option("--replace", "overwrite", is_flag=True, help="Put it in the place of the mask of this name.")
@option("--default", is_flag=True, help="Use it when no other is chosen.")
@in_place_options
@json_option
@pass_console
def add_mask(console: Console, model: str, name: str, source: str, as_json: bool, **given: Any) -> None:
    """Add a mask called NAME to the .cmf file MODEL in place.

    The JSON has rows of 0 and 1 in ffn_masks, head_masks, layer_gates and expert_masks; what is missing restricts
    nothing. Some KiB are appended, whatever the size of the file; `cortiq undo` takes them back.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.mask_source import mask_source
    from cortiq.edit.masks import add_mask as add

    path = existing_file(model)
    before = path.stat().st_size
    made = mask_source(Path(source).expanduser())
    allowed = in_place(given)
    done = add(path, name, made, overwrite=given["overwrite"], default=given["default"], allowed=allowed)
    grown = path.stat().st_size - before
    if as_json:
        facts = {"name": name, "replaced": done.replaced, "masks": done.count, "appended_bytes": grown}
        console.json({"path": str(path), **facts})
    else:
        verb = "replaced" if done.replaced else "added"
        console.line(f"{verb} the mask {printable(name)}: {done.count} in the file, {grown} bytes appended")


@masks.command("remove", cls=Command, epilog=REMOVE_EPILOG, short_help="Take a task mask out in place.")
@click.argument("model")
@click.argument("name")
@option("--default", metavar="OTHER", help="The mask to use when no other is chosen.")
@in_place_options
@json_option
@pass_console
def remove_mask(console: Console, model: str, name: str, default: str | None, as_json: bool, **given: Any) -> None:
    """Take the mask NAME out of the .cmf file MODEL in place.

    A mask that a skill or another mask names stays, and so does the default one unless --default names another.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.masks import remove_mask as remove

    path = existing_file(model)
    before = path.stat().st_size
    remove(path, name, default=default, allowed=in_place(given))
    grown = path.stat().st_size - before
    if as_json:
        console.json({"path": str(path), "name": name, "appended_bytes": grown})
    else:
        console.line(f"removed the mask {printable(name)}, {grown} bytes appended")


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

"""``cortiq skill``: the skills of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console, human_bytes
from cortiq.cli.params import Command, Group, json_option, pass_console
from cortiq.errors import printable

if TYPE_CHECKING:
    from cortiq.container import File, Skill

EPILOG = """
cortiq skill list model.cmf
"""
LIST_EPILOG = """
cortiq skill list model.cmf
cortiq skill list model.cmf --json | jq '.skills[].id'
"""


@click.group(cls=Group, epilog=EPILOG)
@pass_console
@click.pass_context
def skill(ctx: click.Context, console: Console) -> None:
    """Skills: sets of tensors in one file, each put in the place of the backbone's."""
    if ctx.invoked_subcommand is None:
        console.write(ctx.get_help() + "\n")


@skill.command("list", cls=Command, epilog=LIST_EPILOG, short_help="List the skills of a .cmf file.")
@click.argument("model")
@json_option
@pass_console
def list_skills(console: Console, model: str, as_json: bool) -> None:
    """List the skills of the .cmf file MODEL: what each replaces and how it is chosen."""
    from cortiq.cli.models import readable_file
    from cortiq.container import open

    with open(readable_file(model)) as file:
        document = describe_skills(file)
        if as_json:
            console.json(document)
        elif not document["skills"]:
            console.line(f"no skills in {printable(str(file.path))}: a flat backbone")
        else:
            _print(console, document)


def describe_skills(file: File) -> dict[str, Any]:
    """The skills as a JSON document; ``tensors`` and ``bytes`` count what is stored as ``skill.{id}.*``."""
    document: dict[str, Any] = {"path": str(file.path), "standalone": None}
    if file.header.is_skill_file:
        from cortiq.container import skill_file

        bound = skill_file(file)
        document["standalone"] = {
            "id": bound.skill.id,
            "base_dir_hash": f"{bound.base_dir_hash:016x}",
            "tensors": len(file),
            "bytes": sum(entry.nbytes for entry in file.tensors.values()),
        }
    registered = [_record(file, skill_id, file.skills[skill_id]) for skill_id in file.skills]
    others = [_record(file, skill_id, None) for skill_id in file.skills.ids if skill_id not in file.skills]
    return {**document, "skills": registered + others}


def _record(file: File, skill_id: str, record: Skill | None) -> dict[str, Any]:
    """One skill; a registry record is absent where only tensors carry the id."""
    from cortiq.container.strict_json import thaw

    entries = file.skills.entries(skill_id).values()
    selection = record.selection if record else None
    reason = selection.unusable(file.arch.num_layers * file.arch.num_loops) if selection else "no selection"
    return {
        "id": skill_id,
        "registered": record is not None,
        "name": record.name if record else None,
        "tensors": len(entries),
        "bytes": sum(entry.nbytes for entry in entries),
        "layers": list(record.layers) if record else [],
        "routable": reason is None,
        "not_routable": reason,
        "selection": None
        if selection is None
        else {"metric": selection.metric, "phi_layer": selection.phi_layer, "rank": selection.rank},
        "input_mask_task": record.input_mask_task if record else None,
        "quality": thaw(record.quality) if record else None,
        "base_arch": record.base_arch if record else None,
        "task": record.task if record else None,
        "provenance": thaw(record.provenance) if record else None,
    }


def _print(console: Console, document: dict[str, Any]) -> None:
    rows = []
    for found in document["skills"]:
        layers = " ".join(map(str, found["layers"])) or "-"
        chosen = "routable" if found["routable"] else found["not_routable"]
        name = found["name"] or ("-" if found["registered"] else "no record")
        cells = (found["id"], name, str(found["tensors"]), human_bytes(found["bytes"]), layers, chosen)
        rows.append([printable(cell) for cell in (*cells, _quality(found["quality"]))])
    console.table(["skill", "name", "tensors", "size", "layers", "routing", "quality"], rows, right=(2, 3))
    bound = document["standalone"]
    if bound:
        console.line(
            f"a standalone skill: {bound['tensors']} tensors, {human_bytes(bound['bytes'])}, "
            f"cut against the base with directory {bound['base_dir_hash']}"
        )


def _quality(value: Any) -> str:
    """A contract as ``ppl 729.754, backbone 805.533``; anything else as unmeasured or as it is."""
    if isinstance(value, dict) and "metric" in value:
        numbers = [f"{key} {value[key]}" for key in ("backbone",) if key in value]
        return ", ".join([f"{value['metric']} {value.get('overlaid', '')}".rstrip(), *numbers])
    return "unmeasured" if value is None else str(value)

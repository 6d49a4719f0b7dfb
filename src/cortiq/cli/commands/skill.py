"""``cortiq skill``: the skills of a file, and how they get in and out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console, human_bytes
from cortiq.cli.params import Command, Group, in_place, in_place_options, json_option, option, pass_console
from cortiq.errors import printable

if TYPE_CHECKING:
    from cortiq.container import File, Skill

EPILOG = """
cortiq skill list model.cmf
cortiq skill add model.cmf sql.skill.cmf
cortiq skill remove model.cmf sql
"""
LIST_EPILOG = """
cortiq skill list model.cmf
cortiq skill list model.cmf --json | jq '.skills[].id'
"""
ADD_EPILOG = """
cortiq skill add model.cmf sql.skill.cmf
cortiq skill add model.cmf ./trained --id sql --replace
"""
REMOVE_EPILOG = """
cortiq skill remove model.cmf sql
cortiq skill remove model.cmf sql && cortiq compact model.cmf
"""
EXPORT_EPILOG = """
cortiq skill export model.cmf sql sql.skill.cmf
cortiq skill export swarm.cmf sql sql.skill.cmf --base base.cmf
cortiq skill export finetuned.cmf sql sql.skill.cmf --base base.cmf
"""
APPLY_EPILOG = """
cortiq skill apply base.cmf sql.skill.cmf -o specialist.cmf
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


@skill.command("add", cls=Command, epilog=ADD_EPILOG, short_help="Add a skill in place.")
@click.argument("model")
@click.argument("source", metavar="SKILL")
@option("--id", "skill_id", metavar="ID", help="What it is called in the file.")
@option("--replace", "overwrite", is_flag=True, help="Put it in the place of the skill of this id.")
@option("--force", is_flag=True, help="Also one that was cut against other bytes.")
@in_place_options
@json_option
@pass_console
def add_skill(console: Console, model: str, source: str, as_json: bool, **given: Any) -> None:
    """Add SKILL to the .cmf file MODEL in place.

    SKILL is a standalone skill file, or a folder with skill.json and weights in tensors/NAME.npy or *.safetensors,
    which get the dtype of what they replace. Its bytes are appended; `cortiq undo` takes them back.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.skills import add_skill as add
    from cortiq.edit.skills import open_skill

    path, allowed = existing_file(model), in_place(given)
    before = path.stat().st_size
    with (
        console.progress("adding the skill") as progress,
        open_skill(Path(source).expanduser(), progress=progress.update) as found,
    ):
        done = add(path, found, allowed=allowed, **given)
    grown = path.stat().st_size - before
    for note in found.notes:
        console.note(f"note: {note}")
    if as_json:
        facts = {"id": done.id, "replaced": done.replaced, "tensors": done.tensors, "bytes": done.nbytes}
        console.json({"path": str(path), **facts, "mask": done.mask, "appended_bytes": grown})
        return
    verb = "replaced" if done.replaced else "added"
    mask = "" if done.mask is None else " and a mask"
    size = human_bytes(done.nbytes)
    console.line(f"{verb} the skill {done.id}: {done.tensors} tensors, {size}{mask}; {grown} bytes appended")


@skill.command("remove", cls=Command, epilog=REMOVE_EPILOG, short_help="Take a skill out in place.")
@click.argument("model")
@click.argument("skill_id", metavar="ID")
@in_place_options
@json_option
@pass_console
def remove_skill(console: Console, model: str, skill_id: str, as_json: bool, **given: Any) -> None:
    """Take the skill ID out of the .cmf file MODEL in place, and the mask that came with it.

    Its bytes stay in the file, where `cortiq undo` finds them, until `cortiq compact`.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.skills import remove_skill as remove

    path = existing_file(model)
    before = path.stat().st_size
    count = remove(path, skill_id, allowed=in_place(given))
    grown = path.stat().st_size - before
    if as_json:
        console.json({"path": str(path), "id": skill_id, "tensors": count, "appended_bytes": grown})
    else:
        console.line(f"removed the skill {printable(skill_id)}: {count} tensors; {grown} bytes appended")


@skill.command("export", cls=Command, epilog=EXPORT_EPILOG, short_help="Write a skill as a file of its own.")
@click.argument("model")
@click.argument("skill_id", metavar="ID")
@click.argument("out")
@option("--base", metavar="BASE", help="The .cmf file it can be added to.")
@option("--force", is_flag=True, help="Replace an existing OUT.")
@json_option
@pass_console
def export_skill(
    console: Console, model: str, skill_id: str, out: str, base: str | None, force: bool, as_json: bool
) -> None:
    """Write the skill ID of the .cmf file MODEL to OUT, a standalone skill file.

    It fits a file with the bytes MODEL had before it had skills, or those of BASE. When MODEL has no such skill,
    everything in which it differs from BASE becomes one. The last line on standard output is the path of the new file.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.skill_export import export_skill as export

    target = Path(out).expanduser()
    against = None if base is None else existing_file(base)
    done = export(existing_file(model), skill_id, target, base=against, force=force)
    if as_json:
        facts = {"id": skill_id, "tensors": done.tensors, "bytes": done.nbytes}
        console.json({"output": str(target), **facts, "base_dir_hash": f"{done.base_dir_hash:016x}"})
        return
    key = f"{done.base_dir_hash:016x}"
    console.note(f"{done.tensors} tensors, {human_bytes(done.nbytes)}, for the base with directory {key}")
    console.line(str(target))


@skill.command("apply", cls=Command, epilog=APPLY_EPILOG, short_help="Make a model of a base and a skill file.")
@click.argument("base")
@click.argument("source", metavar="SKILL")
@option("--output", "-o", metavar="OUT", required=True, help="The .cmf file to write.")
@option("--force", is_flag=True, help="Also a skill that was cut against other bytes.")
@option("--replace", "overwrite", is_flag=True, help="Replace an existing OUT.")
@json_option
@pass_console
def apply_skill(
    console: Console, base: str, source: str, output: str, force: bool, overwrite: bool, as_json: bool
) -> None:
    """Write the specialist that the skill file SKILL was cut from, from it and the .cmf file BASE.

    The tensors of SKILL take the place of those of BASE, the header is the specialist's. The last line on standard
    output is the path of the new file.
    """
    from cortiq.cli.models import existing_file
    from cortiq.edit.skill_apply import apply_skill as apply

    target, path = Path(output).expanduser(), existing_file(base)
    with console.progress(f"writing {target.name}") as progress:
        skill_path = Path(source).expanduser()
        done = apply(path, skill_path, target, force=force, overwrite=overwrite, progress=progress.update)
    if as_json:
        console.json({"output": str(target), "replaced": done.replaced, "added": done.added})
        return
    console.note(f"{done.replaced} tensors replaced, {done.added} added")
    console.line(str(target))


def describe_skills(file: File) -> dict[str, Any]:
    """The skills as a JSON document; ``tensors`` and ``bytes`` count what is stored as ``skill.{id}.*``."""
    document: dict[str, Any] = {"path": str(file.path), "standalone": None}
    if file.header.is_skill_file:
        from cortiq.container import skill_file
        from cortiq.container.digest import covered

        bound, own = skill_file(file), covered(file)
        document["standalone"] = {
            "id": bound.skill.id,
            "base_dir_hash": f"{bound.base_dir_hash:016x}",
            "tensors": len(own),
            "bytes": sum(file.tensors[name].nbytes for name in own),
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

"""``cortiq story``: what a file says about itself, in plain words."""

from __future__ import annotations

import textwrap

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, json_option, pass_console
from cortiq.errors import printable

WIDTH = 100
EPILOG = """
cortiq story model.cmf
cortiq story model.cmf --json | jq -r '.story.origin[]'
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@json_option
@pass_console
def story(console: Console, model: str, as_json: bool) -> None:
    """Tell where the .cmf file MODEL comes from, what is in it and what vouches for it.

    It says what the file states; `cortiq verify` tells whether that is true.
    """
    from cortiq.cli.models import readable_file
    from cortiq.container import open
    from cortiq.edit.story import story as tell

    with open(readable_file(model)) as file:
        passages = tell(file)
        if as_json:
            console.json({"path": str(file.path), "story": {p.heading: list(p.sentences) for p in passages}})
            return
        console.line(console.paint(printable(str(file.path)), "bold"))
        for passage in passages:
            text = printable(" ".join(passage.sentences))
            console.line()
            console.line(console.paint(passage.heading, "bold"))
            console.line(textwrap.fill(text, WIDTH, break_on_hyphens=False))

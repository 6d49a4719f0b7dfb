"""``cortiq doctor``: the processor, the kernels and threads chosen for it and why, memory bandwidth, versions."""

from __future__ import annotations

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, json_option, option, pass_console
from cortiq.cli.probe import Machine, examine, read_bandwidth

EPILOG = """
cortiq doctor
cortiq doctor --json | jq .isa.chosen
"""


@click.command(cls=Command, epilog=EPILOG)
@option("--no-bandwidth", is_flag=True, help="Skip the memory probe, which takes two seconds.")
@json_option
@pass_console
def doctor(console: Console, no_bandwidth: bool, as_json: bool) -> None:
    """Show this processor, what was chosen for it, and why."""
    machine = examine()
    rates = {} if no_bandwidth else {n: read_bandwidth(n) for n in sorted({1, machine.threads})}
    if as_json:
        console.json(machine.document(rates))
        return
    for label, value in _lines(machine, rates):
        console.line(f"{console.paint(label.ljust(16), 'bold')}{value}")


def _lines(machine: Machine, rates: dict[int, float]) -> list[tuple[str, str]]:
    lines = [
        ("processor", machine.cpu),
        ("kernels", f"{machine.isa} ({machine.isa_reason}); this processor runs {', '.join(machine.isas)}"),
        ("slow dtypes", f"{', '.join(machine.slow_dtypes) or 'none'}; a slow one runs through decode-to-scratch"),
        ("threads", f"{machine.threads} ({machine.threads_reason})"),
        ("mode", f"{machine.mode} ({machine.mode_reason})"),
    ]
    for threads, rate in rates.items():
        lines.append(("memory", f"{rate / 1e9:.1f} GB/s read by {threads} thread{'s' if threads > 1 else ''}"))
    lines.append(("home", f"{machine.home} ({machine.home_reason})"))
    lines.extend((name, version) for name, version in machine.versions.items())
    return lines

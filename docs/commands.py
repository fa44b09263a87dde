"""For the reference: every command with its arguments and options, from the command line itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from d2ace.cli.main import application


def commands() -> Iterator[tuple[str, Any]]:
    """The words of each command, and the command."""
    yield from _leaves("d2ace", typer.main.get_command(application(typer)))


def _leaves(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _leaves(f"{words} {name}", below)


def reference_of_commands() -> str:
    """A section for each command."""
    return "\n\n".join(_section(words, command) for words, command in commands())


def _section(words: str, command: Any) -> str:
    context = command.make_context(words, [], resilient_parsing=True)
    usage = " ".join([words, *command.collect_usage_pieces(context)])
    parts = [f"## {words}", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]
    rows = [_row(parameter, context) for parameter in command.params]
    parts.append("\n".join(["| option | meaning |", "| --- | --- |", *rows]))
    return "\n\n".join(parts)


def _row(parameter: Any, context: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    value = parameter.metavar or parameter.type.name.upper()
    if parameter.param_type_name == "argument":
        names, value = [str(parameter.metavar or parameter.name).strip("[]{}")], ""
    kind = "" if not value or getattr(parameter, "is_flag", False) else f" {value}"
    shown = ", ".join(f"`{name}{kind}`" for name in names)
    default = parameter.get_default(context)
    known = default is not None and default is not False and default != []
    after = f" Default: `{default}`." if known else " Required." if parameter.required else ""
    return f"| {shown} | {_text(parameter.help or '')}{after} |"


def _text(help_text: str) -> str:
    return " ".join(help_text.split()).replace("|", "\\|").replace("<", "&lt;")

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
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    usage = " ".join([words, *map(_argument, arguments), "[OPTIONS]"])
    parts = [f"## {words}", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]
    rows = [_row(parameter) for parameter in command.params]
    parts.append("\n".join(["| option | meaning |", "| --- | --- |", *rows]) if rows else "")
    return "\n\n".join(parts)


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name).strip("[]{}").upper()
    return name if parameter.required else f"[{name}]"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        shown = f"`{_argument(parameter)}`"
    else:
        value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
        names = [*parameter.opts, *parameter.secondary_opts]
        shown = ", ".join(f"`{name}{value}`" for name in names)
    default = parameter.default
    known = not (default is None or default is False or default == [])
    after = f" Default: `{default}`." if known else " Required." if parameter.required else ""
    return f"| {shown} | {_text(parameter.help or '')}{after} |"


def _text(help_text: str) -> str:
    return " ".join(help_text.split()).replace("|", "\\|").replace("<", "&lt;")

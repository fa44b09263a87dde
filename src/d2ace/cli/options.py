"""Commands that take their options from the fields of a dataclass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from d2ace.training import IMAGE_PROTOCOL, RunConfig

__all__ = ["IMAGES", "option", "run_settings", "with_options"]

Command = Callable[..., None]
IMAGES = "Images"
"""The help panel for options of runs on images."""


def option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """A parameter of a command, as typer reads it."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def with_options(
    argument: str, options: Sequence[inspect.Parameter], make: Callable[[dict[str, Any]], Any]
) -> Callable[[Command], Command]:
    """A command with ``options`` in place of its ``argument``, which ``make`` builds from them."""

    def decorate(command: Command) -> Command:
        parameters: list[inspect.Parameter] = []
        for each in inspect.signature(command, eval_str=True).parameters.values():
            own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
            parameters += options if each.name == argument else own

        @functools.wraps(command)
        def typed(**given: Any) -> None:
            chosen = {each.name: given.pop(each.name) for each in options}
            command(**given, **{argument: make(chosen)})

        typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        typed.__annotations__ = {each.name: each.annotation for each in parameters}
        return typed

    return decorate


def run_settings() -> list[inspect.Parameter]:
    """An option for every field of :class:`RunConfig` that has a help text."""
    hints = get_type_hints(RunConfig)
    return [_setting(item, hints[item.name]) for item in fields(RunConfig) if item.metadata]


def _setting(item: Field[Any], kind: Any) -> inspect.Parameter:
    told, panel = item.metadata["help"], IMAGES if item.metadata["images"] else None
    if get_origin(kind) is dict:
        words = typer.Option(metavar="NAME=VALUE", help=told, rich_help_panel=panel)
        return option(item.name.removesuffix("s"), Annotated[list[str] | None, words], None)
    default = item.default
    if item.name in IMAGE_PROTOCOL:  # the default depends on the model
        tables = "" if default is None else f"{default}; images: "
        told += f" ({tables}{IMAGE_PROTOCOL[item.name]})"
        default, kind = None, kind | None
    assert default is not MISSING  # noqa: S101 - data, which must be given, is no option here
    return option(
        item.name, Annotated[kind, typer.Option(help=told, rich_help_panel=panel)], default
    )

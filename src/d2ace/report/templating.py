"""Pages that need nothing else: one template each, style sheet and script inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from .figures import style
from .figures.figure import Figure

TEMPLATES = "templates"


def render(
    template: str,
    style_sheets: Sequence[str],
    *,
    script: str | None = None,
    pictures: bool = False,
    **values: Any,
) -> str:
    """A page of ``templates/``; what is not ours in ``values`` is escaped.

    The page may load nothing. It runs only ``script``, if you name one, and shows pictures only if
    they are embedded.
    """
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=jinja2.FunctionLoader(_template),
    )
    code = "" if script is None else _template(script)
    policy = ["default-src 'none'", "style-src 'unsafe-inline'"]
    if code:
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        policy.append(f"script-src 'sha256-{digest}'")
    if pictures:
        policy.append("img-src data:")
    rules = "".join(_template(sheet) for sheet in style_sheets)
    return environment.get_template(template).render(
        # These two are trusted.
        style_sheet=Markup(rules + style.dark_rules(".drawing")),  # noqa: S704
        script=Markup(code),  # noqa: S704
        policy="; ".join([*policy, "base-uri 'none'", "form-action 'none'"]),
        **values,
    )


def drawing(figure: Figure) -> Markup:
    """A figure inside a page, with its words for those who do not see it."""
    svg = figure.svg().replace("<svg ", f'<svg role="img" aria-label="{escape(figure.alt)}" ', 1)
    return Markup(svg)  # noqa: S704 - matplotlib escapes what it prints


def _template(name: str) -> str:
    return (resources.files("d2ace.report") / TEMPLATES / name).read_text(encoding="utf-8")

"""For the site: lists that follow the code, a page from outside this folder, plain docstrings.

A page says ``<!-- table of methods -->`` where a list belongs; :data:`LISTS` makes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils.meta import get_data

from d2ace.evaluation import METRICS
from d2ace.models import MODELS
from d2ace.selectors import SELECTORS

sys.path.insert(0, str(Path(__file__).parent))  # beside this file, which is loaded by its path
from commands import reference_of_commands

DOCS = Path(__file__).parent
METHODS = DOCS / "reference" / "methods"
OUTSIDE = {
    "benchmarks": ["README.md"],
    "reproduction": ["*.md", "*.csv", "figures/*.svg", "trim/*.md", "trim/*.csv"],
}
"""Folders beside this one -> what the site shows of them, at the same place."""
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?([^<]*)</code>")
LONG = "tables.md"
"""Pages of this name are thousands of numbers: a link opens them, no search and no menu."""
HEAD = ("prefers", "try it when", "also needs", "cost per epoch")
"""What the first lines of a method's card say."""


def table_of_methods() -> str:
    """A row for every method, from the first lines of its card."""
    rows = []
    for name, method in SELECTORS.items():
        head = card_head(name)
        rows.append(
            [f"`{name}`", f"[`{method.__name__}`]({name}.md)", *(head[key] for key in HEAD)]
        )
    return _table(["name", "class and card", "what it prefers", *HEAD[1:]], rows)


def card_head(name: str) -> Mapping[str, str]:
    """The first lines of a method's card."""
    return get_data((METHODS / f"{name}.md").read_text(encoding="utf-8"))[1]


def table_of_metrics() -> str:
    """A row for every metric, from its function's documentation."""
    rows = [
        (f"`{name}`", metric.title, _better(metric.higher_is_better), metric.definition)
        for name, metric in METRICS.items()
    ]
    return _table(["name", "title", "better", "definition"], rows)


def _better(higher: bool) -> str:
    return "higher" if higher else "lower"


def _table(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heading = list(heading)
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, ["---"] * len(heading), *rows))


LISTS: dict[str, Callable[[], str]] = {
    "table of methods": table_of_methods,
    "table of metrics": table_of_metrics,
    "reference of methods": lambda: "\n\n".join(
        f"::: d2ace.{method.__name__}" for method in SELECTORS.values()
    ),
    "reference of commands": reference_of_commands,
    "names of metrics": lambda: ", ".join(METRICS),
    "names of models": lambda: ", ".join(model.__name__ for model in MODELS.values()),
}
"""What a page asks for -> what the site shows there."""


def with_lists(markdown: str) -> str:
    """A page with the lists that it asks for."""
    for name, make in LISTS.items():
        if f"<!-- {name} -->" in markdown:
            markdown = markdown.replace(f"<!-- {name} -->", make())
    return markdown


def on_config(config: Any) -> Any:
    """The cards in the menu, in the order of the methods."""
    cards = [{method.title: f"reference/methods/{name}.md"} for name, method in SELECTORS.items()]
    (reference,) = [entry["Reference"] for entry in config.nav if "Reference" in entry]
    (methods,) = [entry for entry in reference if isinstance(entry, dict) and "Methods" in entry]
    methods["Methods"] = ["reference/methods/README.md", *cards]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and figures from outside."""
    root = Path(config.config_file_path).parent
    patterns = [f"{folder}/{name}" for folder, names in OUTSIDE.items() for name in names]
    for path in (path for pattern in patterns for path in sorted(root.glob(pattern))):
        uri = path.relative_to(root).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lists where they belong; links out of the folder lead to the added page, or to the start."""
    markdown = with_lists(markdown)
    uri = page.file.src_uri
    if page.file.name + ".md" == LONG:
        page.meta |= {"search": {"exclude": True}, "hide": ["navigation", "toc"]}
    if page.is_homepage:
        page.meta |= {"hide": ["navigation"]}  # the menu would have one line
    if uri.partition("/")[0] in OUTSIDE:
        return markdown.replace("](../docs/", "](../")
    up = "../" * uri.count("/")
    markdown = markdown.replace(f"](../{up}README.md)", f"]({up}index.md)")
    for folder in OUTSIDE:
        markdown = markdown.replace(f"](../{up}{folder}/", f"]({up}{folder}/")
    return markdown


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Names in docstrings without the roles that say what they are."""
    return ROLE.sub(r"<code>\1</code>", html)

"""For the site: pages that live outside this folder, and docstrings written for Sphinx."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

OUTSIDE = {
    "benchmarks": ["README.md"],
    "reproduction": ["README.md", "tables.md", "figures/*.svg"],
}
"""Folders beside this one -> what the site shows of them, at the same place."""
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?([^<]*)</code>")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and figures from outside."""
    root = Path(config.config_file_path).parent
    patterns = [f"{folder}/{name}" for folder, names in OUTSIDE.items() for name in names]
    for path in (path for pattern in patterns for path in sorted(root.glob(pattern))):
        uri = path.relative_to(root).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links that lead out of a folder on GitHub lead to the added pages here, or to the start."""
    uri = page.file.src_uri
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

"""For the site: a page that lives outside this folder, and docstrings written for Sphinx."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PAGE = "benchmarks/README.md"  # the measured figures, beside the benchmarks
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?([^<]*)</code>")


def on_files(files: Files, config: Any) -> Files:
    """Add the page of figures."""
    text = (Path(config.config_file_path).parent / PAGE).read_text(encoding="utf-8")
    files.append(File.generated(config, PAGE, content=text.replace("](../docs/", "](../")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links that lead out of the folder on GitHub lead to the added page here, or to the start."""
    up = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace(f"](../{up}README.md)", f"]({up}index.md)")
    return markdown.replace(f"](../{up}{PAGE}", f"]({up}{PAGE}")


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Names in docstrings without the roles that say what they are."""
    return ROLE.sub(r"<code>\1</code>", html)

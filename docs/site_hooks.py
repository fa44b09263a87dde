"""For the site: the page of measured figures lives beside the benchmarks, outside this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PAGE = "benchmarks/README.md"


def on_files(files: Files, config: Any) -> Files:
    """Add the page of figures."""
    text = (Path(config.config_file_path).parent / PAGE).read_text(encoding="utf-8")
    files.append(File.generated(config, PAGE, content=text.replace("](../docs/", "](../")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links that lead out of the folder on GitHub lead to the added page here."""
    up = "../" * page.file.src_uri.count("/")
    return markdown.replace(f"](../{up}{PAGE}", f"]({up}{PAGE}")

"""Gives the built docs the texts that lie at the root of the repository; a hook of MkDocs (``hooks`` in mkdocs.yml).

GitHub shows these texts where people look for them, so they stay there, and their links are those of the repository.
On the site they are pages beside all others, so links from and to them are changed on the way.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Texts of the root, and their places in the docs."""
_LINK = re.compile(r"\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def linked_in_docs(text: str, source: str) -> str:
    """A text with links that hold in the docs.

    Args:
        text: in Markdown.
        source: where it lies in the repository; its links are relative to that.
    """
    page = PAGES.get(source, source.removeprefix("docs/"))

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["target"]))
        if target not in PAGES and not target.startswith("docs/"):
            return link[0]
        place = PAGES.get(target, target.removeprefix("docs/"))
        return f"]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{link['anchor'] or ''})"

    return _LINK.sub(moved, text)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Called by MkDocs with all files of docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=linked_in_docs(text, source)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Called by MkDocs with the text of each page."""
    source = page.file.src_uri
    return markdown if source in PAGES.values() else linked_in_docs(markdown, f"docs/{source}")

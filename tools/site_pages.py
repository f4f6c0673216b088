"""Makes the site of what lies in the repository; a hook of MkDocs (``hooks`` in mkdocs.yml).

Texts of the root and programs of examples/ stay where people look for them on GitHub, and their links are those of the
repository. On the site they are pages beside all others, so links from and to them are changed on the way. Long tables
become lists of entries with an anchor each, keys of options become links to them, and pictures become part of the page,
so that they follow its colours.
"""

from __future__ import annotations

import ast
import functools
import json
import posixpath
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Texts beside the code, and their places in the docs."""
EXAMPLES = ROOT / "examples"
OPTIONS = "options.md"
ENTRIES = {OPTIONS: ("Key",), "rest-api.md": ("Method and path", "Type"), "helm-values.md": ("Value",)}
"""Pages whose tables with these first columns are shown as entries, one below the other."""
TEXT_COLUMNS = {"What it does", "What", "Fields", ""}
"""Columns of entries that take a line of their own."""
BOOSTS = {OPTIONS: 3, "api": 3, "changelog.md": 0.3, "internals": 0.3}
"""How much more or less pages and folders count in the search than others."""
_RECIPE = re.compile(r"^\[`(?P<source>examples/recipes/\w+\.py)`\]\([^)\s]+\)$", re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^\]\n]*)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")
_OPTION_ROW = re.compile(r"^\| `([\w.-]+)` \| .* \| .* \| .* \|$", re.MULTILINE)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr>\n(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<t[dh][^>]*>(.*?)</t[dh]>", re.DOTALL)
_CODE_OR_LINK = re.compile(r"<a\b.*?</a>|<h\d.*?</h\d>|<pre.*?</pre>|<code>(?P<code>[\w.-]+)</code>", re.DOTALL)
_IDENTIFIER = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
_PICTURE = re.compile(r'<img alt="[^"]*" src="(?P<source>[^"]+\.svg)"[^>]*/?>')


GLOSSARY = "glossary.md"
_TERM = re.compile(r"^(?P<term>\w[\w -]*)\n: (?P<meaning>[^.\[]+)", re.MULTILINE)
_TAG = re.compile(r"(<[^>]*>)")
_NO_TERMS_IN = {"a", "code", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "th", "svg", "strong", "dt"}
_EVERYDAY = {
    "chain",
    "columns",
    "job",
    "key",
    "operator",
    "sink",
    "source",
    "split",
    "state",
    "task",
    "timer",
    "window",
}
"""Words of the glossary that have other meanings, too, or stand everywhere: they do not become links."""
_REMOTE = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|icon|preload|preconnect|manifest))[^>]*?\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|url\(["']?((?:https?:)?//[^"')]+)|@import ["']((?:https?:)?//[^"']+)"""
)


def programs() -> dict[str, str]:
    """Programs and notebooks of examples/, each with its place in the docs; recipes have pages of their own."""
    paths = [path for pattern in ("*.py", "notebooks/*.ipynb") for path in EXAMPLES.glob(pattern)]
    sources = sorted(path.relative_to(ROOT) for path in paths if not path.name.startswith("_"))
    return {source.as_posix(): source.with_suffix(".md").as_posix() for source in sources}


def recipes() -> dict[str, str]:
    """Programs of examples/recipes/, each with the page about it."""
    paths = sorted(EXAMPLES.glob("recipes/*.py"))
    return {f"examples/recipes/{path.name}": f"recipes/{path.stem}.md" for path in paths}


def with_programs(markdown: str) -> str:
    """A page with the whole program in place of each line that is nothing but a link to a recipe."""

    def program(line: re.Match[str]) -> str:
        source = line["source"]
        return f'```python title="{source}"\n{(ROOT / source).read_text(encoding="utf-8")}```'

    return _RECIPE.sub(program, markdown)


def linked_in_docs(text: str, source: str) -> str:
    """A text with links that hold in the docs.

    Args:
        text: in Markdown.
        source: where it lies in the repository; its links are relative to that.
    """
    places = PAGES | programs() | recipes()
    page = places.get(source, source.removeprefix("docs/"))

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["target"]))
        if target not in places and not target.startswith("docs/"):
            return (
                link["text"] if source in PAGES else link[0]
            )  # in docs/ such a link is a mistake, which fails the build
        place = places.get(target, target.removeprefix("docs/"))
        return f"[{link['text']}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{link['anchor'] or ''})"

    return _LINK.sub(moved, text)


def program_page(source: str) -> str:
    """The page of a program: what its docstring says, then the file as it is. Of a notebook: its cells."""
    code = (ROOT / source).read_text(encoding="utf-8")
    if source.endswith(".ipynb"):
        cells = ((cell["cell_type"], "".join(cell["source"])) for cell in json.loads(code)["cells"])
        texts = [f"```python\n{text}\n```" if kind == "code" else text for kind, text in cells]
        return "\n\n".join([*texts, f"The notebook is `{source}`.", ""])
    about = (ast.get_docstring(ast.parse(code)) or "").replace("``", "`")
    return f'# {posixpath.basename(source)}\n\n{about}\n\n```python title="{source}"\n{code}```\n'


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Called by MkDocs with all files of docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=linked_in_docs(text, source)))
    for source, page in programs().items():
        files.append(File.generated(config, page, content=program_page(source)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Called by MkDocs with the text of each page."""
    source = page.file.src_uri
    page.meta.setdefault("search", {"boost": BOOSTS.get(source.partition("/")[0], 1)})
    generated = source in PAGES.values() or source in programs().values()
    return markdown if generated else linked_in_docs(with_programs(markdown), f"docs/{source}")


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Called by MkDocs with what has become of the text of each page."""
    source = page.file.src_uri
    if source in ENTRIES:
        html = _TABLE.sub(lambda table: entries(table[0], ENTRIES[source]), html)
    html = with_links(html, page.url)
    if source == GLOSSARY:
        html = re.sub(r"<dt>([^<]+)</dt>", lambda term: f'<dt id="{anchor(term[1])}">{term[1]}</dt>', html)
    elif "/" not in source and source not in ENTRIES and source not in PAGES.values():
        html = with_links_to_words(html)
    return _PICTURE.sub(lambda image: picture(image, page.url), html)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Called by MkDocs with each page as it is written."""
    if addresses := remote_assets(output):
        raise PluginError(f"{page.file.src_uri} would load {', '.join(addresses)}; the site loads only its own files")
    return output


def on_post_build(*, config: MkDocsConfig) -> None:
    """Called by MkDocs when all is written."""
    site = Path(config.site_dir)
    for path in site.rglob("*.css"):
        if addresses := remote_assets(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.name} would load {', '.join(addresses)}; the site loads only its own files")
    # MkDocs checks the links of texts, not those that this hook adds; without the reference, theirs lead nowhere.
    addresses = [place for place in meanings().values() if has_reference(config) or not place.startswith("api/")]
    if missing := missing_anchors(site, addresses):
        raise PluginError(f"options and names of classes would lead to {', '.join(missing)}, which is not there")


def has_reference(config: MkDocsConfig) -> bool:
    """Whether pages describe the classes (``FIRESTEEL_API_REFERENCE``)."""
    return bool(config.plugins["mkdocstrings"].config["enabled"])


def missing_anchors(site: Path, addresses: Iterable[str]) -> list[str]:
    """Addresses that no page has.

    Args:
        site: folder of the built pages.
        addresses: pages with anchors, relative to the folder.
    """
    anchors: dict[str, set[str]] = {}
    missing = []
    for address in addresses:
        page, _, name = address.partition("#")
        if page not in anchors:
            path = site / page
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            anchors[page] = set(re.findall(r'\bid="([^"]+)"', text))
        if name not in anchors[page]:
            missing.append(address)
    return missing


def remote_assets(text: str) -> list[str]:
    """Addresses on other hosts that a browser loads by itself when it shows a page or uses a style sheet."""
    return ["".join(match) for match in _REMOTE.findall(text)]


@functools.cache
def option_keys() -> frozenset[str]:
    """Keys of all options that docs/options.md lists."""
    return frozenset(_OPTION_ROW.findall((ROOT / "docs" / OPTIONS).read_text(encoding="utf-8")))


def entries(table: str, first_columns: tuple[str, ...]) -> str:
    """A table as a list of entries, each with its name as anchor; another table as it is.

    Args:
        table: in HTML.
        first_columns: headings of the first column of tables that become lists.
    """
    head, *rows = [_CELL.findall(row) for row in _ROW.findall(table)]
    if head[0] not in first_columns:
        return table
    lines = []
    for first, *others in rows:
        name = re.sub(r"<[^>]+>|\s*\(.*\)", "", first).replace(" ", "-")
        link = f'<a class="headerlink" href="#{name}" title="Permanent link">¶</a>'
        cells = [f"<td>{first}{link}</td>"]
        for heading, cell in zip(head[1:], others, strict=True):
            kind = ' class="text"' if heading in TEXT_COLUMNS else ""
            cells.append(f'<td data-name="{escape(heading)}"{kind}>{cell}</td>')
        lines.append(f'<tr id="{name}">{"".join(cells)}</tr>')
    headings = "".join(f"<th>{heading}</th>" for heading in head)
    body = "\n".join(lines)
    return f'<table class="entries"><thead><tr>{headings}</tr></thead><tbody>\n{body}\n</tbody></table>'


@functools.cache
def meanings() -> dict[str, str]:
    """Addresses where options and classes are described, by keys and names."""
    keys = {key: f"options.html#{key}" for key in option_keys()}
    return keys | {identifier.rpartition(".")[2]: address for identifier, address in identifiers().items()}


def identifiers() -> dict[str, str]:
    """Addresses of what docs/api describes, by full names."""
    addresses = {}
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for identifier in _IDENTIFIER.findall(page.read_text(encoding="utf-8")):
            addresses[identifier] = f"api/{page.stem}.html#{identifier}"
    return addresses


def with_links(html: str, page: str) -> str:
    """A page whose keys of options and names of classes, where they stand in running text, lead to what they mean.

    Args:
        html: of the page.
        page: its address.
    """

    def linked(code: re.Match[str]) -> str:
        address = meanings().get(code["code"] or "")
        if address is None or address.partition("#")[0] == page != "options.html":
            return code[0]
        return f'<a class="meaning" href="{posixpath.relpath(address, posixpath.dirname(page) or ".")}">{code[0]}</a>'

    return _CODE_OR_LINK.sub(linked, html)


@functools.cache
def words() -> dict[str, str]:
    """Words of the glossary in small letters, and what they mean."""
    return {
        term["term"].lower(): " ".join(term["meaning"].split())
        for term in _TERM.finditer((ROOT / "docs" / GLOSSARY).read_text(encoding="utf-8"))
    }


@functools.cache
def _any_word() -> re.Pattern[str]:
    longest_first = sorted(words().keys() - _EVERYDAY, key=lambda word: (-len(word), word))
    return re.compile(rf"\b({'|'.join(map(re.escape, longest_first))})(s?)\b(?![-./])", re.IGNORECASE)


def anchor(word: str) -> str:
    """The place of a word in the glossary."""
    return word.lower().replace(" ", "-")


def with_links_to_words(html: str) -> str:
    """A page on which the first of each word of the glossary in running text leads there and shows its meaning.

    Args:
        html: of a page beside the glossary.
    """
    seen: set[str] = set()

    def linked(word: re.Match[str]) -> str:
        term = word[1].lower()
        if term in seen:
            return word[0]
        seen.add(term)
        return f'<a class="word" href="glossary.html#{anchor(term)}" title="{escape(words()[term])}">{word[0]}</a>'

    parts, inside = _TAG.split(html), 0
    for index, part in enumerate(parts):
        if part.startswith("<"):
            if part.strip("</> ").partition(" ")[0] in _NO_TERMS_IN:
                inside += -1 if part.startswith("</") else 1
        elif not inside:
            parts[index] = _any_word().sub(linked, part)
    return "".join(parts)


def picture(image: re.Match[str], page: str) -> str:
    """The picture itself in place of the element that would load it.

    Args:
        image: the element.
        page: address of its page, to which the picture's is relative.
    """
    path = ROOT / "docs" / posixpath.normpath(posixpath.join(posixpath.dirname(page), image["source"]))
    return f'<span class="picture" style="display: block">{path.read_text(encoding="utf-8")}</span>'

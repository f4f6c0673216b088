"""The documentation site: what its hook makes of pages, and that it loads nothing from elsewhere."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from tools import pictures, site_pages


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/a.js"></script>',
        "<script async src=//cdn.example/a.js></script>",
        '<link rel="stylesheet" href="https://fonts.example/css?family=Roboto">',
        '<link href="https://fonts.example" rel="preconnect" crossorigin>',
        '<img alt="" src="http://images.example/a.png">',
        "@font-face { src: url(https://fonts.example/a.woff2) }",
        '@import "https://fonts.example/css";',
    ],
)
def test_what_a_browser_would_load_from_elsewhere_is_seen(text: str) -> None:
    assert len(site_pages.remote_assets(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        '<script src="../assets/a.js"></script>',
        '<link rel="stylesheet" href="assets/a.css">',
        '<a href="https://example.org">elsewhere</a>',
        '<link rel="canonical" href="https://example.org/docs/">',
        '<code>&lt;img src="https://example.org/a.png"&gt;</code>',
        "background: url(data:image/svg+xml;charset=utf-8,x)",
    ],
)
def test_links_are_no_assets(text: str) -> None:
    assert site_pages.remote_assets(text) == []


def test_a_long_table_becomes_entries_with_anchors() -> None:
    row = "<tr>\n<td><code>rest.port</code></td>\n<td><code>8081</code></td>\n<td>Port.</td>\n</tr>"
    head = "<thead>\n<tr>\n<th>Key</th>\n<th>Default</th>\n<th>What it does</th>\n</tr>\n</thead>"
    table = f"<table>\n{head}\n<tbody>\n{row}\n</tbody>\n</table>"
    shown = site_pages.entries(table, ("Key",))
    assert '<tr id="rest.port"><td><code>rest.port</code>' in shown
    assert '<td data-name="Default"><code>8081</code></td>' in shown
    assert '<td data-name="What it does" class="text">Port.</td>' in shown
    assert site_pages.entries(table, ("Value",)) == table


def test_keys_of_options_and_names_of_classes_lead_to_what_they_mean() -> None:
    html = '<p><code>rest.port</code>, <code>no.key</code>, <a href="x"><code>rest.port</code></a></p>'
    linked = site_pages.with_links(html, "write-your-own/sink.html")
    assert linked.count('<a class="meaning" href="../options.html#rest.port"><code>rest.port</code></a>') == 1
    assert linked.endswith('<code>no.key</code>, <a href="x"><code>rest.port</code></a></p>')
    assert "api/state.html#firesteel.datastream.state.ValueState" in site_pages.with_links(
        "<code>ValueState</code>", "state.html"
    )


def test_words_lead_to_the_glossary_once_on_a_page() -> None:
    html = "<h2>A watermark</h2><p>A watermark, <code>slot</code> and watermarks; <a href='x'>slot</a>, key groups</p>"
    linked = site_pages.with_links_to_words(html)
    assert re.findall(r'<a class="word" href="([^"]+)" title="[^"]+">([^<]+)</a>', linked) == [
        ("glossary.html#watermark", "watermark"),
        ("glossary.html#key-group", "key groups"),
    ]
    assert re.sub(r'<a class="word"[^>]*>([^<]+)</a>', r"\1", linked) == html


def test_each_program_of_the_examples_has_a_page_that_is_the_program() -> None:
    for source, page in site_pages.programs().items():
        text = site_pages.program_page(source)
        assert text.startswith("# ")
        if source.endswith(".py"):
            code = (site_pages.ROOT / source).read_text(encoding="utf-8")
            assert text.endswith(f'```python title="{source}"\n{code}```\n')
        assert f": {page}\n" in (site_pages.ROOT / "mkdocs.yml").read_text(encoding="utf-8"), "it stands in nav"


def test_a_line_that_is_a_link_to_a_recipe_becomes_the_program() -> None:
    source = "examples/recipes/sessionise.py"
    text = f"# Page\n\n[`{source}`](../../{source})\n\nSee [`{source}`](../../{source}).\n"
    code = (site_pages.ROOT / source).read_text(encoding="utf-8")
    shown = site_pages.with_programs(text)
    assert shown == f'# Page\n\n```python title="{source}"\n{code}```\n\nSee [`{source}`](../../{source}).\n'
    assert "](sessionise.md)" in site_pages.linked_in_docs(shown, "docs/recipes/deduplicate.md")


def test_links_of_the_repository_hold_on_the_site() -> None:
    text = "[a](../examples/state.py), [b](../ARCHITECTURE.md#x), [c](time.md), [d](https://example.org/)"
    moved = site_pages.linked_in_docs(text, "docs/index.md")
    assert re.findall(r"\]\((.*?)\)", moved) == [
        "examples/state.md",
        "architecture.md#x",
        "time.md",
        "https://example.org/",
    ]


MODULES = [
    "firesteel.common",
    "firesteel.datastream",
    "firesteel.datastream.async_retry_strategies",
    "firesteel.datastream.connectors",
    "firesteel.datastream.connectors.base",
    "firesteel.datastream.connectors.data_generator",
    "firesteel.datastream.connectors.file_system",
    "firesteel.datastream.connectors.hybrid_source",
    "firesteel.datastream.connectors.jdbc",
    "firesteel.datastream.connectors.kafka",
    "firesteel.datastream.connectors.number_seq",
    "firesteel.datastream.data_stream",
    "firesteel.datastream.formats.avro",
    "firesteel.datastream.formats.csv",
    "firesteel.datastream.formats.json",
    "firesteel.datastream.formats.parquet",
    "firesteel.datastream.formats.protobuf",
    "firesteel.datastream.functions",
    "firesteel.datastream.state",
    "firesteel.datastream.window",
    "firesteel.functions.metrics",
    "firesteel.testing",
]
"""Modules from which programs import."""


def public_classes() -> dict[str, type]:
    """Public classes by name; a class with two names is there by the first."""
    classes: dict[type, str] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for member in module.__all__:
            if isinstance(value := getattr(module, member), type) and not member.startswith("_"):
                classes.setdefault(value, member)
    return {name: value for value, name in classes.items()}


def test_public_classes_have_examples() -> None:  # tests/docs runs them
    shown = {name for name, value in public_classes().items() if "```python" in (vars(value).get("__doc__") or "")}
    assert public_classes().keys() - shown == set()


def test_each_public_class_is_in_the_reference() -> None:
    names = (identifier.rpartition(".") for identifier in site_pages.identifiers())
    described = [getattr(importlib.import_module(module), name) for module, _, name in names]
    assert [name for name, value in public_classes().items() if value not in described] == []


def test_links_of_the_hook_have_to_lead_somewhere(tmp_path: Path) -> None:
    """The tier ``docs`` of ``./dev test --all`` builds the site, with the reference of classes."""
    (tmp_path / "options.html").write_text('<tr id="rest.port"><td>')
    addresses = ["options.html#rest.port", "options.html#rest", "api/state.html#firesteel.State"]
    assert site_pages.missing_anchors(tmp_path, addresses) == addresses[1:]


def texts_of_the_product() -> set[str]:
    """Texts in the sources of what users install; ``…`` stands for what is put in when the program runs."""
    texts = set()
    for path in [*site_pages.ROOT.glob("libs/*/src/**/*.py"), *site_pages.ROOT.glob("services/*/src/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.add("".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(re.sub(r"%[sdr]|%\.\d[fg]|%g", "…", node.value))
    return texts


def test_each_message_of_the_page_on_troubleshooting_is_one_of_the_product() -> None:
    page = (site_pages.ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^### `(.+)`$", page, re.MULTILINE)
    lines = {line for text in texts_of_the_product() for line in text.splitlines()}
    assert len(messages) > 40
    for message in messages:
        parts = message.split("…")
        longest = max(parts, key=len)  # few lines have it, and an expression over all of them takes seconds
        pattern = re.compile(".*?".join(map(re.escape, parts)))
        assert any(longest in line and pattern.search(line) for line in lines), message


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_what_its_script_draws(name: str) -> None:
    assert (pictures.IMAGES / name).read_text(encoding="utf-8") == pictures.PICTURES[name]().render(), (
        "draw it anew: python -m tools.pictures"
    )

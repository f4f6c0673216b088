"""The recipes, run as their pages say, give what plain Python finds in the same data; each has a page."""

from __future__ import annotations

import csv
import http.server
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from tests.docs.conftest import RunProgram
from tests.docs.recipe_oracles import DATA, alerts, as_dicts, records, score, texts, visits

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "examples" / "recipes"
CLICKS = (DATA / "clicks.jsonl").read_text(encoding="utf-8").splitlines()
MODES = pytest.mark.parametrize("mode", [[], ["--batch"]], ids=["streaming", "batch"])
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def recipe(run_together: RunProgram, tmp_path: Path) -> Any:
    """Runs a recipe; the folder with its results."""

    def run(name: str, *arguments: str) -> Path:
        process = run_together(RECIPES / f"{name}.py", "--output", str(tmp_path / "out"), *arguments, folder=tmp_path)
        assert process.returncode == 0, process.stderr
        return tmp_path / "out"

    return run


def flights() -> list[dict[str, str]]:
    with (DATA / "flights.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@MODES
def test_sessionise(recipe: Any, mode: list[str]) -> None:
    out = recipe("sessionise", *mode)
    late = texts(out / "late")  # one click is two hours late, where the file is not read before time is looked at
    assert ["c900" in line for line in late] in ([], [True])
    assert not (late and mode), "nothing is late in batch mode"
    assert records(out / "visits") == visits([line for line in CLICKS if not (late and "c900" in line)])
    assert sorted(re.sub(r".*(byte|no).*", r"\1", line) for line in texts(out / "bad")) == ["byte", "byte", "no"]


@MODES
def test_deduplicate(recipe: Any, mode: list[str]) -> None:
    out = recipe("deduplicate", *mode)
    counts = Counter(click["id"] for click in as_dicts(CLICKS))
    assert Counter(click["id"] for click in records(out / "events")) == dict.fromkeys(counts, 1)
    assert Counter(click["id"] for click in records(out / "again")) == counts - Counter(counts.keys())
    assert len(texts(out / "bad")) == 1


def test_csv_to_parquet(recipe: Any) -> None:
    out = recipe("csv_to_parquet")
    table = pyarrow.dataset.dataset(out / "flights", partitioning="hive").to_table()
    fields = ["carrier", "flight", "origin", "dest", "delay"]
    actual = Counter((*(row[name] for name in fields), f"{row['hour']:%FT%TZ}") for row in table.to_pylist())
    assert actual == Counter(
        (
            *(flight[name] for name in ("carrier",)), int(flight["flight"]), flight["origin"], flight["dest"],
            None if flight["dep_delay"] == "NA" else int(flight["dep_delay"]), flight["time_hour"],
        )
        for flight in flights()
    )  # fmt: skip
    assert {path.name for path in (out / "flights").iterdir()} == {f"carrier={f['carrier']}" for f in flights()}


def test_ml_scoring(recipe: Any) -> None:
    out = recipe("ml_scoring")
    model = json.loads((DATA / "late_arrival.json").read_text())
    scores = [(flight["carrier"], int(flight["flight"]), score(flight, model)) for flight in flights()]
    actual = Counter((line["carrier"], line["flight"], line["p_late"]) for line in records(out / "scores"))
    assert actual == Counter(entry for entry in scores if entry[2] is not None)
    assert len(texts(out / "unscored")) == sum(entry[2] is None for entry in scores) > 0


def test_alert_on_absence(recipe: Any) -> None:
    out = recipe("alert_on_absence")
    assert records(out / "alerts") == alerts((DATA / "heartbeats.jsonl").read_text(encoding="utf-8").splitlines())
    assert len(texts(out / "bad")) == 2


@pytest.fixture
def customers() -> Iterator[str]:
    """The address of the service that the page starts."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(DATA / "customers"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_enrich_by_lookup(recipe: Any, customers: str) -> None:
    out = recipe("enrich_by_lookup", "--service", customers)
    known = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (DATA / "customers").iterdir()}
    clicks = [click for click in as_dicts(CLICKS) if click["user"] is not None]
    expected = [{**click, "customer": known[click["user"]]} for click in clicks if click["user"] in known]
    assert records(out / "enriched") == sorted(expected, key=lambda click: json.dumps(click, sort_keys=True))
    unresolved = records(out / "unresolved")
    assert Counter(click["id"] for click in unresolved) == Counter(c["id"] for c in clicks if c["user"] not in known)
    assert {(click["user"], click["problem"]) for click in unresolved} == {("李雷", "unknown customer")}


def test_each_recipe_has_a_page_with_the_program() -> None:
    names = {path.stem for path in RECIPES.glob("*.py")}
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "recipes").glob("*.md")}
    index = pages.pop("index")
    assert set(pages) == names
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for name, page in pages.items():
        path = f"examples/recipes/{name}.py"
        assert f"\n[`{path}`](../../{path})\n" in page, "the line in whose place the site has the program"
        assert f"({name}.md)" in index
        assert f" recipes/{name}.md\n" in nav

"""The tables of figures are those that the files of benchmarks/results give."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.record import (
    ALL_FIGURES,
    FIRST_LOOK,
    Comparison,
    Figure,
    filled,
    large_table,
    latest,
    of_runs,
    read,
    small_table,
    write,
)

BYTEWAX = Figure(system="Bytewax", value=0.5, low=0.4, high=0.6)


def comparison(date: str, ours: float, **other: object) -> Comparison:
    fields = {
        "id": "w2",
        "group": "Windows",
        "what": "count",
        "unit": "M/s",
        "better": "more",
        "command": "./dev bench w2",
    }
    figures = {"date": date, "ours": Figure(value=ours), "beside": (BYTEWAX,), "first_look": True}
    return Comparison(**{**fields, **figures, **other})  # type: ignore[arg-type]


@pytest.mark.parametrize(("page", "table"), [(ALL_FIGURES, large_table), (FIRST_LOOK, small_table)])
def test_the_tables_are_of_today(page: Path, table: object) -> None:
    assert callable(table)
    text = page.read_text(encoding="utf-8")
    assert filled(text, table(read())) == text, "write them anew: python -m benchmarks.record"


def test_the_comparison_with_other_systems_has_the_figures_of_today() -> None:
    results = {comparison.id: comparison for comparison in latest(read())}
    page = " ".join((FIRST_LOOK.parent / "docs" / "choose.md").read_text(encoding="utf-8").split())

    def times(name: str, system: str) -> str:
        result = results[name]
        return f"{result.ratio(next(figure for figure in result.beside if figure.system.startswith(system))):.3g}"

    count, kafka = results["w2"].ours.value, results["kafka-read"].ours.value
    of_columns = [results[name].ratio(results[name].beside[0]) for name in ("w1c", "w1cp", "w2c", "w3c", "w4c")]
    for sentence in (
        f"runs at {count:g} million records a second, {times('w2', 'Bytewax')} times Bytewax's rate",
        f"runs at {kafka:g} million, {times('kafka-read', 'PyFlink 2.3, functions in processes')} times PyFlink's",
        f"and {times('kafka-read', 'Quix')} times Quix Streams'",
        f"ran at {min(of_columns):.2g} to {max(of_columns):.2g} times the rate of Flink in Java",
        f"99 of 100 records pass a keyed count within {results['latency'].ours.value:g} ms",
        f"the next record comes within {results['recovery'].ours.value:g} s",
    ):
        assert sentence in page


def test_the_latest_of_each_comparison_is_shown(tmp_path: Path) -> None:
    for date, rate in (("2026-11-21", 1.0), ("2026-11-26", 1.25)):
        write(comparison(date, rate), tmp_path)
    results = read(tmp_path)
    assert [result.date for result in results] == ["2026-11-21", "2026-11-26"]
    assert [result.ours.value for result in latest(results)] == [1.25]
    assert small_table(results).splitlines()[-1] == "| count | 1.25 M/s | Bytewax: 0.5 M/s | 2.5 |"
    assert "| 1.25 M/s | Bytewax: 0.5 M/s (0.4-0.6) | 2.5 | 1, 2026-11-26 |" in large_table(results)


def test_of_seconds_fewer_are_better() -> None:
    assert comparison("2026-11-21", 2.0, unit="s", better="less").ratio(BYTEWAX) == 0.25


def test_a_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = write(comparison("2026-11-21", 1.0), tmp_path)
    path.rename(tmp_path / "2026-11-22-w2.json")
    with pytest.raises(ValueError, match=r"has to be named 2026-11-21-w2\.json"):
        read(tmp_path)
    (tmp_path / "2026-11-22-w2.json").write_text('{"id": "w2"}')
    with pytest.raises(ValueError, match=r"2026-11-22-w2.json: .*group"):
        read(tmp_path)


def test_runs_of_the_benchmarks_become_a_comparison() -> None:
    ours = [{"rate": rate, "peak_pss_mb": 490, "other_cores": 0.1} for rate in (1_410_000, 1_360_000, 1_410_000)]
    theirs = [{"rate": rate, "peak_pss_mb": 100, "other_cores": 0.2} for rate in (316_000, 299_000, 328_000)]
    result = of_runs("w2", ours, theirs, "Bytewax 0.21.1", "./dev bench w2")
    assert result.ours == Figure(value=1.41, low=1.36, high=1.41, peak_pss_mb=490)
    assert result.beside == (Figure(system="Bytewax 0.21.1", value=0.316, low=0.299, high=0.328, peak_pss_mb=100),)
    assert (result.unit, result.runs, result.other_cores, result.note) == ("M/s", 3, (0.1, 0.2), "")
    theirs[0]["other_cores"] = 1.7
    assert of_runs("w2", ours, theirs, "Bytewax", "./dev bench w2").note == "noisy: other processes used 1.7 cores"


def test_what_is_neither_rate_nor_latency_is_not_kept() -> None:
    with pytest.raises(SystemExit, match="gives cold_s"):
        of_runs("start", [{"cold_s": 3.2}], [], "", "./dev bench start")

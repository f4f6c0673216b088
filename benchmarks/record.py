"""Figures that are kept: one file of benchmarks/results for each comparison, and the tables that are made from them.

    python -m benchmarks.record    # writes the tables of benchmarks/README.md and README.md anew

``./dev bench ... --save`` writes such a file. A figure is never overwritten by a later one: the date is in its file's
name, and the tables show the latest of each comparison. A test compares the tables with the files.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results"
ALL_FIGURES, FIRST_LOOK = ROOT / "benchmarks" / "README.md", ROOT / "README.md"
QUIET: Final = 0.25
"""Cores that others may use while a figure is measured."""
GROUPS: Final = (
    "Streaming, Python functions",
    "Streaming, columns",
    "Windows",
    "Latency",
    "State and checkpoints",
    "Kafka",
    "Batch",
    "SQL",
    "Starting, memory, failures",
)
"""Headings of the large table, in their order."""


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one system has shown.

    Attributes:
        system: with its version where it is not ours.
        value: the median of the runs, in the unit of the comparison.
        low: the smallest of the runs; None = there was one run, or only the median is known.
        high: the largest.
        peak_pss_mb: of the whole process tree.
    """

    system: str = "Firesteel"
    value: float
    low: float | None = None
    high: float | None = None
    peak_pss_mb: int | None = None

    def text(self, unit: str) -> str:
        """As it stands in a table."""
        if self.low is None or self.high is None:
            return f"{_number(self.value)} {unit}"
        return f"{_number(self.value)} {unit} ({_number(self.low)}-{_number(self.high)})"


class Comparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One file of results.

    Attributes:
        id: names the comparison; the latest file of an id is shown.
        group: heading in the large table, one of ``GROUPS``.
        what: what the job does, in a few words.
        date: when it was measured, year-month-day.
        unit: of all values.
        better: whether more is better, or less.
        ours: our figure.
        beside: the other systems, measured in turn with ours.
        runs: of each system.
        other_cores: what processes outside the tree used meanwhile, from the least to the most of the runs.
        command: how to repeat it.
        goal: what it was to reach, in words.
        note: what else a reader has to know.
        first_look: whether it stands in README.md as well.
    """

    id: str
    group: str
    what: str
    date: str
    unit: str
    better: Literal["more", "less"]
    ours: Figure
    beside: tuple[Figure, ...] = ()
    runs: int = 1
    other_cores: tuple[float, float] | None = None
    command: str
    goal: str = ""
    note: str = ""
    first_look: bool = False

    def ratio(self, other: Figure) -> float:
        """How many times better ours is."""
        return self.ours.value / other.value if self.better == "more" else other.value / self.ours.value

    def file_name(self) -> str:
        """Of its file."""
        return f"{self.date}-{self.id}.json"


def _number(value: float) -> str:
    """Three digits that count; more of large numbers."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def read(folder: Path = RESULTS) -> list[Comparison]:
    """All files of results, by date.

    Raises:
        ValueError: a file can't be read, or has another name than its content says.
    """
    comparisons = []
    for path in sorted(folder.glob("*.json")):
        try:
            comparison = msgspec.json.decode(path.read_bytes(), type=Comparison)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path}: {error}") from error
        if path.name != comparison.file_name():
            raise ValueError(f"{path}: by its content it has to be named {comparison.file_name()}")
        if comparison.group not in GROUPS:
            raise ValueError(f"{path}: {comparison.group!r} is none of the groups {', '.join(GROUPS)}")
        comparisons.append(comparison)
    return comparisons


def write(comparison: Comparison, folder: Path = RESULTS) -> Path:
    """Keeps a comparison; returns its file."""
    path = folder / comparison.file_name()
    path.write_bytes(msgspec.json.format(msgspec.json.encode(comparison), indent=2) + b"\n")
    return path


def latest(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The last one of each id, in the order of groups, then by id."""
    last: dict[str, Comparison] = {}
    for comparison in comparisons:
        last[comparison.id] = comparison
    return sorted(last.values(), key=lambda comparison: (GROUPS.index(comparison.group), comparison.id))


def large_table(comparisons: Sequence[Comparison]) -> str:
    """The table of benchmarks/README.md."""
    lines = ["| | Firesteel | beside | ratio | runs, date |", "|---|---|---|---|---|"]
    group = ""
    for comparison in latest(comparisons):
        if comparison.group != group:
            group = comparison.group
            lines.append(f"| **{group}** | | | | |")
        beside = "<br>".join(f"{other.system}: {other.text(comparison.unit)}" for other in comparison.beside)
        ratios = "<br>".join(_number(comparison.ratio(other)) for other in comparison.beside)
        note = f"; {comparison.note}" if comparison.note else ""
        lines.append(
            f"| [`{comparison.id}`](results/{comparison.file_name()}) {comparison.what}{note} "
            f"| {comparison.ours.text(comparison.unit)} | {beside} | {ratios} | {comparison.runs}, {comparison.date} |"
        )
    return "\n".join(lines)


def small_table(comparisons: Sequence[Comparison]) -> str:
    """The table of README.md: the best known other system of each."""
    lines = ["| | Firesteel | beside | ratio |", "|---|---|---|---|"]
    for comparison in latest(comparisons):
        if comparison.first_look and comparison.beside:
            other, unit = comparison.beside[0], comparison.unit
            ours = f"{_number(comparison.ours.value)} {unit}"
            beside = f"{other.system}: {_number(other.value)} {unit}"
            lines.append(f"| {comparison.what} | {ours} | {beside} | {_number(comparison.ratio(other))} |")
    return "\n".join(lines)


def filled(page: str, table: str) -> str:
    """A page with a table in the place that is marked for it.

    Raises:
        ValueError: there is no such place.
    """
    pattern = re.compile(r"(?<=<!-- results -->\n\n).*?(?=\n\n<!-- end of results -->)", re.DOTALL)
    if not pattern.search(page):
        raise ValueError("the page has no line <!-- results --> with a later line <!-- end of results -->")
    return pattern.sub(lambda _: table, page)


def of_runs(
    what: str, ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], peer: str, command: str
) -> Comparison:
    """A comparison from runs of ``./dev bench``; rates become millions a second.

    Args:
        what: id of the comparison: the workload, or another name where options or the other system differ.
        ours: what each run has printed.
        theirs: the same of the other system.
        peer: its name and version.
        command: how it was run.
    """
    key, unit, scale = ("rate", "M/s", 1e-6) if "rate" in ours[0] else ("p99_ms", "ms", 1.0)
    if key not in ours[0]:
        raise SystemExit(f"--save knows rates and latencies; {what} gives {', '.join(ours[0])}")
    if theirs and key not in theirs[0]:
        raise SystemExit(f"the peer of {what} gives no {key}")

    def figure(system: str, runs: Sequence[dict[str, Any]]) -> Figure:
        values = [float(f"{run[key] * scale:.4g}") for run in runs]
        peak = max(int(run["peak_pss_mb"]) for run in runs)
        several = len(values) > 1
        return Figure(
            system=system,
            value=statistics.median(values),
            low=min(values) if several else None,
            high=max(values) if several else None,
            peak_pss_mb=peak,
        )

    before = {comparison.id: comparison for comparison in read()}.get(what)
    cores = [float(run["other_cores"]) for run in (*ours, *theirs)]
    return Comparison(
        id=what,
        group=before.group if before else GROUPS[0],
        what=before.what if before else what,
        date=time.strftime("%Y-%m-%d"),
        unit=unit,
        better="more" if key == "rate" else "less",
        ours=figure("Firesteel", ours),
        beside=(figure(peer, theirs),) if theirs else (),
        runs=len(ours),
        other_cores=(min(cores), max(cores)),
        command=command,
        note=f"noisy: other processes used {max(cores):.2g} cores" if max(cores) > QUIET else "",
        goal=before.goal if before else "",
        first_look=before.first_look if before else False,
    )


def main() -> None:
    comparisons = read()
    for page, table in ((ALL_FIGURES, large_table(comparisons)), (FIRST_LOOK, small_table(comparisons))):
        page.write_text(filled(page.read_text(encoding="utf-8"), table), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()

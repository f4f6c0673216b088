"""``firesteel top``: what the vertices of running jobs do."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from typing import Any

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.cli.named_jobs import ENDED, named_jobs
from firesteel.client.cli.top_table import WANTED, JobRows, VertexRow, lines
from firesteel.client.connections import ClusterConnection, close_connections, connect
from firesteel.client.console import Console
from firesteel.client.rest_client import RestClient
from firesteel.client.waiting import wait_for
from firesteel.core.errors import ConfigurationError, JobNotFoundError, RpcError

_NEEDS_RICH = (
    "the live table needs the package rich: pip install 'firesteel[cli]'; without it, --once shows one moment, "
    "and --json all figures of it"
)

NARROW, GIVES_WAY = 76, frozenset({"STATE", "OUT/S", "SHUFFLED", "SPILLED", "WRITTEN"})
"""Width of a terminal below which the columns of ``GIVES_WAY`` are left out, so that names stay readable."""


def top(parsed: argparse.Namespace, console: Console) -> int:
    """Show figures of running jobs, live on a terminal (``firesteel top``)."""
    live = console.is_terminal and not parsed.once and not parsed.json
    if live:
        try:
            import rich  # noqa: F401 # an extra
        except ImportError as error:
            raise ConfigurationError(_NEEDS_RICH) from error
    try:
        connection = connect(settings_of(parsed))
        job_id = None if parsed.job is None else named_jobs(console, connection, [parsed.job])[0]
        looking = Looking(connection.rest, job_id)
        jobs = wait_for(console, connection, "Asking for metrics", looking.look())
        if live:
            _show(connection, looking, jobs, parsed.interval)
        elif parsed.json:
            console.say_json({"jobs": [job.plain() for job in jobs]})
        else:
            for line in lines(jobs, shutil.get_terminal_size().columns if console.is_terminal else None):
                console.say_states(line)
    finally:
        close_connections()
    return exit_codes.DONE


class Looking:
    """Reads the figures of running jobs over REST; its coroutines run on the loop of the connection.

    Args:
        rest: of the cluster.
        job_id: the only job to show; None = all that have not ended.
    """

    def __init__(self, rest: RestClient, job_id: str | None) -> None:
        self._rest, self._job_id = rest, job_id
        self._metrics: dict[tuple[str, str], str] = {}
        """Job and vertex -> names of the metrics to ask for, joined by commas: those of ``WANTED`` that it has."""

    async def look(self) -> list[JobRows]:
        """Read the figures of this moment.

        Raises:
            JobNotFoundError: there is no such job.
            RpcError: the cluster does not answer, or refuses.
        """
        if self._job_id is not None:
            return [await self._job(self._job_id)]
        overview = (await self._rest.get("/jobs/overview"))["jobs"]
        job_ids = [str(job["jid"]) for job in overview if job["state"] not in ENDED]
        looks = await asyncio.gather(*(self._job_if_there(job_id) for job_id in job_ids))
        return [job for job in looks if job is not None]

    async def _job_if_there(self, job_id: str) -> JobRows | None:
        try:
            return await self._job(job_id)
        except JobNotFoundError:
            return None

    async def _job(self, job_id: str) -> JobRows:
        details = await self._rest.get(f"/jobs/{job_id}")
        checkpoints, restarts, *metrics = await asyncio.gather(
            self._checkpoints(job_id),
            self._restarts(job_id),
            *(self._subtasks(job_id, str(vertex["id"])) for vertex in details["vertices"]),
        )
        now = int(details["now"])
        rows = [
            VertexRow.of(vertex, vertex_metrics, now)
            for vertex, vertex_metrics in zip(details["vertices"], metrics, strict=True)
        ]
        return JobRows.of(details, checkpoints, restarts, rows)

    async def _checkpoints(self, job_id: str) -> dict[str, Any] | None:
        try:
            return dict(await self._rest.get(f"/jobs/{job_id}/checkpoints"))
        except JobNotFoundError:  # it takes none
            return None

    async def _restarts(self, job_id: str) -> int:
        answer = await self._rest.get(f"/jobs/{job_id}/metrics?get=numRestarts")
        return int(answer[0]["value"]) if answer else 0

    async def _subtasks(self, job_id: str, vertex_id: str) -> list[dict[str, Any]]:
        path = f"/jobs/{job_id}/vertices/{vertex_id}/subtasks/metrics"
        metric_names = self._metrics.get((job_id, vertex_id))
        if metric_names is None:
            reported_names = {str(metric["id"]) for metric in await self._rest.get(path)}
            metric_names = ",".join(name for name in WANTED if name in reported_names)
            if not metric_names:  # nothing has been reported yet
                return []
            self._metrics[job_id, vertex_id] = metric_names
        return list(await self._rest.get(f"{path}?get={metric_names}&agg=min,max,sum"))


def _show(connection: ClusterConnection, looking: Looking, jobs: Sequence[JobRows], interval: float) -> None:
    """Show a live table until the user presses q."""
    from rich.console import Console as RichConsole
    from rich.live import Live

    screen = RichConsole()
    with (
        _single_keys() as key,
        Live(_table(jobs, "", screen.width), console=screen, screen=True, auto_refresh=False) as live,
    ):
        trouble = ""
        while True:
            live.update(_table(jobs, trouble, screen.width), refresh=True)
            if key(interval) in ("q", "Q", "\x1b", "\x03", "\x04"):
                return
            try:
                jobs, trouble = connection.loop.run(looking.look()), ""
            except JobNotFoundError:
                raise
            except RpcError as error:  # it may come back
                trouble = str(error)


def _table(jobs: Sequence[JobRows], trouble: str, width: int = NARROW) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = [Text(f"{time.strftime('%H:%M:%S')}  q: quit", style="dim")]
    if trouble:
        parts.append(Text(trouble, style="bold red"))
    if not jobs:
        parts.append(Text("No running jobs."))
    for job in jobs:
        table = Table(title=Text(job.title()), title_justify="left", expand=True, box=None, header_style="bold")
        rows = [row.cells(bars=True) for row in job.vertices]
        columns = [number for number, name in enumerate(job.header) if width >= NARROW or name not in GIVES_WAY]
        for number in columns:
            name = job.header[number]
            # Names give way: figures that are cut say nothing.
            widest = None if number == 0 else max([len(name), *(len(cells[number]) for cells in rows)])
            table.add_column(
                name, justify="left" if number < 2 else "right", no_wrap=True, overflow="ellipsis", min_width=widest,
                ratio=1 if number == 0 else None,
            )  # fmt: skip
        for row in job.vertices:
            cells = [Text(cell) for cell in row.cells(bars=True)]
            for position, share in ((5, row.busy), (6, row.back_pressured)) if row.stage is None else ():
                cells[position].stylize("red" if (share or 0) >= 0.8 else "yellow" if (share or 0) >= 0.5 else "")
            table.add_row(*(cells[number] for number in columns))
        parts.append(table)
    return Group(*parts)


@contextlib.contextmanager
def _single_keys() -> Iterator[Any]:
    """Read keys without Enter: yields a function that waits so many seconds for a key, and returns "" without one."""
    if not sys.stdin.isatty():

        def wait(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield wait
        return
    stdin = sys.stdin.fileno()
    terminal_settings = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)

    def key(seconds: float) -> str:
        ready, _, _ = select.select([stdin], [], [], seconds)
        return sys.stdin.read(1) or "\x04" if ready else ""

    try:
        yield key
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, terminal_settings)

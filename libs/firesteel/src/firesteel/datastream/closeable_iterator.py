"""``CloseableIterator``: the results of ``execute_and_collect``."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, Final

from firesteel.common.executor import CollectingJobClient, ResultStream
from firesteel.common.record_tables import records_table
from firesteel.core import html_cards
from firesteel.core.errors import FiresteelError
from firesteel.core.notebook import InterruptedCellError, kernel_shell

__all__ = ["CloseableIterator"]

_AHEAD: Final = 1_000
"""Results that a notebook reads ahead, about: as many as come with the pull that brings the last of them."""
_FIRST_RESULT_SECONDS: Final = 30.0
_MORE_RESULTS_SECONDS: Final = 2.0
"""A cell that shows results waits so long for the first one, and then for more."""
_FAILURE_LIMIT: Final = 2_000


class CloseableIterator(Iterator[Any]):
    """Results of a running job, in the order in which they arrive; the job waits for a slow reader.

    ``close`` (or the end of a ``with`` block, or dropping the iterator) before the end cancels the job. When the job
    fails, ``next`` raises the reason after all results that came before it.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        with env.from_sequence(1, 1_000_000).execute_and_collect() as results:
            print(next(results), next(results))  # leaving the block cancels the job
        ```

        ```text
        1 2
        ```
    """

    def __init__(self, stream: ResultStream, job_client: CollectingJobClient) -> None:
        self._stream = stream
        self._job_client = job_client
        self._at_hand = _ResultsAtHand()
        fetch = partial(_fetch, weakref.ref(stream), self._at_hand)
        fetch.stream = stream  # type: ignore[attr-defined] # whoever reads keeps it
        self._values = chain.from_iterable(iter(fetch, None))
        """All results. No Python code of ours runs for each, where Ctrl-C would leave a frame that keeps the stream,
        and so the job, alive."""

    def get_job_client(self) -> CollectingJobClient:
        """Returns the client of the job that gives the results."""
        return self._job_client

    def __iter__(self) -> Iterator[Any]:
        return self._values

    def __next__(self) -> Any:
        return next(self._values)

    def next(self) -> Any:
        """Returns the next result.

        Raises:
            StopIteration: the job has finished and all results were read.
            JobError: the job did not finish.
        """
        return next(self._values)

    def close(self) -> None:
        """Gives up reading; a job that has not ended is cancelled. Idempotent."""
        self._at_hand.is_last = True
        self._at_hand.clear()
        self._stream.close()

    def __repr__(self) -> str:
        at_hand = self._at_hand
        return f"<CloseableIterator: {at_hand.fetched:,} results so far of {self._job_client!r}>"

    def _repr_html_(self) -> str:
        """The results that nobody has read yet, as a notebook shows them; whoever reads on gets them all."""
        failure = self._read_ahead()
        at_hand = self._at_hand
        read = at_hand.fetched - len(at_hand.ahead)
        if failure:
            state = f"the job failed: {failure}"
        elif at_hand.is_last:
            state = "closed; the job was cancelled unless it had ended"
        elif at_hand.has_ended:
            state = f"all have come; {read:,} of them were read" if read else "all have come"
        else:
            state = "more may come: read on, or close() cancels the job"
        facts = [("job", html_cards.text(repr(self._job_client))), ("state", html_cards.text(state, _FAILURE_LIMIT))]
        shown = at_hand.ahead[: html_cards.MAX_ROWS]
        rest = html_cards.more(len(at_hand.ahead) - len(shown), "results")
        title = f"{at_hand.fetched:,} result{'' if at_hand.fetched == 1 else 's'}"
        return html_cards.card(title, facts, records_table(shown) if shown else "", rest)

    def _read_ahead(self) -> str:
        """Fetch results that a notebook shows before anybody reads them; returns why the job failed, if it has.

        It ends with the results, with ``_AHEAD`` of them, or some time after the first one of a slow stream.
        """
        at_hand = self._at_hand
        deadline = time.monotonic() + _FIRST_RESULT_SECONDS
        while not (at_hand.has_ended or at_hand.is_last or len(at_hand.ahead) >= _AHEAD or time.monotonic() > deadline):
            had_results = bool(at_hand.ahead)
            try:
                results = _next_results(weakref.ref(self._stream), at_hand)
            except FiresteelError as error:  # whoever reads on gets it behind the results
                return str(error)
            if results is None:
                return ""
            at_hand.ahead.extend(results)
            if results and not had_results:
                deadline = time.monotonic() + _MORE_RESULTS_SECONDS
        return ""

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _ResultsAtHand(list[Any]):
    """The results at hand.

    Attributes:
        is_last: no further results are wanted.
        has_ended: all were fetched.
        ahead: fetched for a notebook, and read by nobody yet.
        fetched: number of results fetched so far.
    """

    is_last = False
    has_ended = False

    def __init__(self) -> None:
        super().__init__()
        self.ahead: list[Any] = []
        self.fetched = 0


def _fetch(reference: weakref.ref[ResultStream], at_hand: _ResultsAtHand) -> list[Any] | None:
    """The next results, as the same list each time; None at the end.

    It is called by C code, and its frame knows the stream by a weak reference only before it can answer Ctrl-C.
    """
    results: list[Any] | None
    if at_hand.ahead and not at_hand.is_last:
        results, at_hand.ahead = at_hand.ahead, []
    else:
        results = _next_results(reference, at_hand)
    if results is None:
        return None
    at_hand[:] = results
    return at_hand


def _next_results(reference: weakref.ref[ResultStream], at_hand: _ResultsAtHand) -> list[Any] | None:
    """Results from the stream; None at the end."""
    try:
        stream = reference()
        results = None if stream is None or at_hand.is_last else stream.fetch()
    except KeyboardInterrupt:  # its traceback would keep the stream, and so the job, alive
        stream = reference()
        if stream is not None:
            stream.close()
        if kernel_shell() is not None:
            raise InterruptedCellError from None
        raise
    except StopIteration as error:  # of a record's own code as it is unpickled: no end of the results
        raise RuntimeError("a result raised StopIteration when it was read") from error
    if results is None:
        at_hand.has_ended = not at_hand.is_last
    else:
        at_hand.fetched += len(results)
    return results

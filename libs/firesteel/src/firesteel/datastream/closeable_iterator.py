"""``CloseableIterator``: the results of ``execute_and_collect``."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any

from firesteel.common.executor import CollectingJobClient, ResultStream

__all__ = ["CloseableIterator"]


class CloseableIterator(Iterator[Any]):
    """Results of a running job, in the order in which they arrive; the job waits for a slow reader.

    ``close`` (or the end of a ``with`` block, or dropping the iterator) before the end cancels the job. When the job
    fails, ``next`` raises the reason after all results that came before it.
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

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _ResultsAtHand(list[Any]):
    """The results at hand. Attributes: ``is_last``: no further results are wanted."""

    is_last = False


def _fetch(reference: weakref.ref[ResultStream], at_hand: _ResultsAtHand) -> list[Any] | None:
    """The next results, as the same list each time; None at the end.

    It is called by C code, and its frame knows the stream by a weak reference only before it can answer Ctrl-C.
    """
    try:
        stream = reference()
        results = None if stream is None or at_hand.is_last else stream.fetch()
    except KeyboardInterrupt:  # its traceback would keep the stream, and so the job, alive
        stream = reference()
        if stream is not None:
            stream.close()
        raise
    except StopIteration as error:  # of a record's own code as it is unpickled: no end of the results
        raise RuntimeError("a result raised StopIteration when it was read") from error
    if results is None:
        return None
    at_hand[:] = results
    return at_hand

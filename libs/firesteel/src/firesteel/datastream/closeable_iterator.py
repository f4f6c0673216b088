"""``CloseableIterator``: the results of ``execute_and_collect``."""

from __future__ import annotations

from collections.abc import Iterator
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
        self._waiting: Iterator[Any] = iter(())
        self._ended = False

    def get_job_client(self) -> CollectingJobClient:
        """Returns the client of the job that gives the results."""
        return self._job_client

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Any:
        try:
            while True:
                for value in self._waiting:
                    return value
                results = None if self._ended else self._stream.fetch()
                if results is None:
                    self._ended = True
                    raise StopIteration
                self._waiting = iter(results)
        except KeyboardInterrupt:  # its traceback would keep this iterator, and so the job, alive
            self.close()
            raise

    def next(self) -> Any:
        """Returns the next result.

        Raises:
            StopIteration: the job has finished and all results were read.
            JobError: the job did not finish.
        """
        return self.__next__()

    def close(self) -> None:
        """Gives up reading; a job that has not ended is cancelled. Idempotent."""
        self._ended = True
        self._waiting = iter(())
        self._stream.close()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

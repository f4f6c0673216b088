"""Blobs of jobs: fetched once from the Dispatcher, checked, kept as files until the job's last slot here is freed."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import aiohttp

from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError, RpcError
from firesteel.rpc import Signer

logger = logging.getLogger(__name__)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20
_LIMITS = aiohttp.ClientTimeout(total=50.0, sock_connect=5.0, sock_read=10.0)


class BlobCache:
    """Fetches blobs of jobs, and keeps them in a directory for each job.

    Args:
        directory: private to this cache; made when needed.
        secret: of the cluster; signs requests.
        clock: stamps requests.
    """

    def __init__(self, directory: Path, secret: str, clock: Clock) -> None:
        self._directory = directory
        self._signer = Signer(secret, clock)
        self._fetches: dict[tuple[str, str], asyncio.Task[Path]] = {}

    async def fetch(
        self, session: aiohttp.ClientSession, job_id: str, address: str, names: Iterable[str]
    ) -> dict[str, str]:
        """Paths of blobs by SHA-256; those that are missing are fetched side by side.

        Raises:
            PeerUnreachableError: the Dispatcher does not answer.
            RpcError: the Dispatcher has no such blob, or sent another content, or the blob can't be written here.
        """
        sha256s = sorted(set(names))
        for name in sha256s:
            if not _SHA256.fullmatch(name):
                raise RpcError(f"{name!r:.80} is not the SHA-256 of a blob")
            key = (job_id, name)
            task = self._fetches.get(key)
            if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
                coroutine = self._fetch(session, job_id, address, name)
                self._fetches[key] = asyncio.get_running_loop().create_task(coroutine)
        paths = await asyncio.gather(*(asyncio.shield(self._fetches[job_id, name]) for name in sha256s))
        return {name: str(path) for name, path in zip(sha256s, paths, strict=True)}

    def forget(self, job_id: str) -> None:
        """Delete the blobs of a job."""
        for key in [k for k in self._fetches if k[0] == job_id]:
            self._fetches.pop(key).cancel()
        shutil.rmtree(self._directory / job_id, ignore_errors=True)

    async def close(self) -> None:
        tasks = list(self._fetches.values())
        self._fetches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shutil.rmtree(self._directory, ignore_errors=True)

    async def _fetch(self, session: aiohttp.ClientSession, job_id: str, address: str, name: str) -> Path:
        folder = self._directory / job_id
        part, whole = folder / f"{name}.part", folder / name
        digest = hashlib.sha256()
        url = f"{address.rstrip('/')}/blobs/{name}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            async with session.get(
                url,
                headers=self._signer.headers("GET", url),
                timeout=_LIMITS,
                allow_redirects=False,
            ) as answer:
                if answer.status != 200:
                    raise RpcError(f"{url}: answered {answer.status}: {(await answer.text())[:300]}")
                with part.open("wb") as file:
                    async for piece in answer.content.iter_chunked(_PIECE):
                        digest.update(piece)
                        file.write(piece)
            if digest.hexdigest() != name:
                part.unlink(missing_ok=True)
                raise RpcError(f"{url}: what came has the SHA-256 {digest.hexdigest()}")
            os.replace(part, whole)
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise PeerUnreachableError(f"{url}: {str(error) or type(error).__name__}") from error
        except OSError as error:  # of the file: those of the network are ClientErrors
            part.unlink(missing_ok=True)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            advice = ": make room there, or choose another place (firesteel.run.directory)" if full else ""
            raise RpcError(f"blob {name} can't be written to {folder}: {error.strerror or error}{advice}") from error
        return whole

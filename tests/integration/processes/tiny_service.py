"""A service of one screen, for tests of what all service processes have in common."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from aiohttp import web

from firesteel.service.base import Service
from firesteel.service.process import ServiceContext, ServicePlan, run_service


class Tiny(Service):
    """``/fail``, ``/end`` and ``/child`` do what they say; with ``stubborn`` it never drains."""

    def __init__(self, stubborn: bool) -> None:
        super().__init__("tiny", drain_seconds=60)
        self._stubborn = stubborn
        self.app.add_routes([web.get(f"/{name}", getattr(self, f"_{name}")) for name in ("fail", "end", "child")])

    async def on_drain(self) -> None:
        if self._stubborn:
            print("draining", flush=True)
            await asyncio.Event().wait()

    async def _fail(self, _: web.Request) -> web.Response:
        async def fail() -> None:
            raise RuntimeError("lost my way")

        self.spawn(fail(), "wanderer")
        return web.json_response({})

    async def _end(self, _: web.Request) -> web.Response:
        self.request_stop()
        return web.json_response({})

    async def _child(self, _: web.Request) -> web.Response:
        return web.json_response({"environment": subprocess.check_output(["env"], text=True)})  # noqa: ASYNC221


def build(context: ServiceContext) -> ServicePlan:
    host, port, advertised, *rest = context.arguments
    (context.cluster_directory / "was-here").touch()
    return ServicePlan(Tiny("stubborn" in rest), host, int(port), advertised)


if __name__ == "__main__":
    sys.exit(run_service("tiny", build))

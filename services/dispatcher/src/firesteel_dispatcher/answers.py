"""Errors of the REST API's handlers as answers in Flink's shape."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from firesteel.core.errors import ConfigurationError, GraphError, RpcError, UnauthorizedError
from firesteel.ha.documents import DamagedEntryError
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rest.checkpoint_views import NoCheckpointsError
from firesteel.rest.rescale_views import NotAdaptiveError, UnknownRescaleError
from firesteel.rest.views import UnknownVertexError
from firesteel.service.middlewares import error_response
from firesteel.service.process_logs import UnknownLogError
from firesteel_dispatcher.admission import ClosingError
from firesteel_dispatcher.job import JobConflictError, JobEndedError, UnknownJobError
from firesteel_dispatcher.programs import BusyError, ProgramFailedError, UnknownProgramError
from firesteel_dispatcher.rest_processes import UnknownTaskManagerError
from firesteel_dispatcher.submission import TooLargeError

logger = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_NOT_FOUND: Final = (
    UnknownJobError,
    UnknownVertexError,
    NoCheckpointsError,
    UnknownRescaleError,
    UnknownTaskManagerError,
    UnknownLogError,
)
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def with_errors(handler: Handler) -> Handler:
    """A handler whose errors become answers."""

    async def checked(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except UnauthorizedError as error:
            refusal = error_response(401, str(error))
            refusal.headers["WWW-Authenticate"] = "Bearer"
            return refusal
        except _NOT_FOUND as error:
            return error_response(404, str(error))
        except (JobEndedError, JobConflictError, NotAdaptiveError) as error:
            return error_response(409, str(error))
        except (GraphError, ConfigurationError, UnknownProgramError, ProgramFailedError) as error:
            return error_response(400, str(error))
        except TooLargeError as error:
            return error_response(413, str(error))
        except DamagedEntryError as error:
            logger.error("%s: %s", request.path, error)
            return error_response(500, f"What is stored of the job is damaged: {error}")
        except BusyError as error:
            return error_response(503, str(error))
        except TimeoutError as error:  # a call hung, such as one to the directory of uploads
            logger.error("%s: %s", request.path, error)
            return error_response(503, str(error) or "The cluster did not do this in time.")
        except ClosingError:
            return error_response(503, "The cluster is being shut down: it takes no more jobs.")
        except RpcFault as error:
            status = {RpcCode.NOT_FOUND: 404, RpcCode.BAD_REQUEST: 400, RpcCode.REFUSED: 400, RpcCode.GONE: 410}.get(
                error.code, 500
            )
            return error_response(status, str(error) if status == 500 else error.said)
        except RpcError as error:
            return error_response(503, f"Another service of the cluster does not answer: {error}")

    return checked


def not_stored(error: OSError, place: object) -> web.Response:
    """The answer to a submission that could not be stored."""
    full = error.errno in _NO_ROOM
    logger.error("a job could not be stored in %s: %s", place, error)
    reason = "the disk is full" if full else error.strerror or str(error)
    text = (
        f"The job was not accepted, because the Dispatcher can't store it in {place}: {reason}. Nothing of it is left."
    )
    return error_response(507 if full else 500, text)

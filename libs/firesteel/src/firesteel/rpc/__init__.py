"""Calls between services: JSON over HTTP, with ids that make repeats harmless and tokens that fence off old leaders."""

from firesteel.rpc.answering import answers, by_token, check_token, handlers_of
from firesteel.rpc.client import RpcClient
from firesteel.rpc.guard import Guard
from firesteel.rpc.lanes import Calls, Lane, Spawn
from firesteel.rpc.retries import Failure, Patience, is_gone, may_work_later, repeated, until_it_works
from firesteel.rpc.server import Handler, RpcRequest, rpc_routes
from firesteel.rpc.signing import Signer

__all__ = [
    "Calls",
    "Failure",
    "Guard",
    "Handler",
    "Lane",
    "Patience",
    "RpcClient",
    "RpcRequest",
    "Signer",
    "Spawn",
    "answers",
    "by_token",
    "check_token",
    "handlers_of",
    "is_gone",
    "may_work_later",
    "repeated",
    "rpc_routes",
    "until_it_works",
]

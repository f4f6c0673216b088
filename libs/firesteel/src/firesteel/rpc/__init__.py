"""Calls between services: JSON over HTTP, with ids that make repeats harmless and tokens that fence off old leaders."""

from firesteel.rpc.answering import answers, by_token, check_token, handlers_of
from firesteel.rpc.client import RpcClient, check_reachable
from firesteel.rpc.guard import RequestGuard
from firesteel.rpc.server import Handler, RpcRequest, rpc_routes
from firesteel.rpc.signing import Signer

__all__ = [
    "Handler",
    "RequestGuard",
    "RpcClient",
    "RpcRequest",
    "Signer",
    "answers",
    "by_token",
    "check_reachable",
    "check_token",
    "handlers_of",
    "rpc_routes",
]

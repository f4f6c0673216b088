"""Calls between services: JSON over HTTP, with ids that make repeats harmless and tokens that fence off old leaders."""

from firesteel.rpc.client import RpcClient
from firesteel.rpc.server import Handler, RpcRequest, rpc_routes

__all__ = ["Handler", "RpcClient", "RpcRequest", "rpc_routes"]

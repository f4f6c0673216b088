"""Runs subtasks inside a slot: task loop, operators, exchange, control channel."""

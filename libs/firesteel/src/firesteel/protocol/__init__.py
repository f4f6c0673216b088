"""Typed messages between the services, and between a TaskManager and its slots."""

"""The common parts of all services: life cycle, health, heartbeats, JSON errors and logs."""

"""What every service has: a life cycle, health, heartbeats, JSON errors and logs."""

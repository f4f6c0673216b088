"""The event loop of a slot: sockets, timers and subtasks take turns on it, and what it measures of them."""

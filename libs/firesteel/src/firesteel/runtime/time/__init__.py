"""Timers and watermarks of tasks."""

"""Interfaces that users implement or use: functions, sources, sinks, state descriptors."""

"""Foundations without third-party imports: errors, ids, clock, state machines, plug-in look-up."""

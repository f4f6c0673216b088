"""Submits programs: what travels to the slots, the embedded cluster, the ``firesteel`` command."""

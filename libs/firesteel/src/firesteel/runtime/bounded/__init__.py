"""Stages of bounded jobs: a vertex's chain inside tasks of a Spark stage."""

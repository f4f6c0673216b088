"""Asynchronous calls from operators: the thread that runs them, and the order in which results leave."""

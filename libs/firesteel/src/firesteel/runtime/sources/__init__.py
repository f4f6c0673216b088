"""The inputs of source tasks: ``source_input`` drives a reader, ``enumerator_input`` a user's enumerator.

``source_time`` assigns timestamps and watermarks for each split; ``async_polls`` runs readers written for asyncio.
"""

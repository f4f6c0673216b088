"""A slot process from its start to its release.

Spark's ``daemon`` forks it, ``slot_main`` registers it with its TaskManager over ``control``, ``slot`` obeys that
TaskManager, and ``deployer`` builds the tasks. The other modules are what surrounds user code: ``user_code`` loads it,
``stdio`` and ``slot_logging`` carry its output, ``inspection`` samples its stacks, ``telemetry`` traces it.
"""

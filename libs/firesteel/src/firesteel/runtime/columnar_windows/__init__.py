"""Windows over columns, with state in arrays: a slot for each key and pane (``fixed``) or each session (``sessions``).

``make`` creates them for an operator, ``snapshots`` writes them to checkpoints.
"""

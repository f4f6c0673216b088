"""Windows over columns: state in arrays, one slot for each key and pane, or for each session."""

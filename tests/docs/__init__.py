"""A package, so that a fixture of its scope ends with the last test of this folder."""

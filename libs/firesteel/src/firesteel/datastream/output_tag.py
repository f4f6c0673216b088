"""Tags of side outputs, under PyFlink's module path."""

from firesteel.functions.output_tag import OutputTag

__all__ = ["OutputTag"]

"""Declared options, and settings read through them. Options stand in ``firesteel.config.options``."""

from __future__ import annotations

from firesteel.config.load import load_settings, parse_definitions, read_config_file, read_environment
from firesteel.config.option import Option, OptionType, Secret
from firesteel.config.settings import Settings

__all__ = [
    "Option",
    "OptionType",
    "Secret",
    "Settings",
    "load_settings",
    "parse_definitions",
    "read_config_file",
    "read_environment",
]

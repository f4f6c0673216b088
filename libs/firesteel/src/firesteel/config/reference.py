"""Renders docs/options.md from the declared options: ``python -m firesteel.config.reference > docs/options.md``."""

from __future__ import annotations

from firesteel.config.keys import RENAMED, RENAMED_PREFIXES
from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE, ENVIRONMENT_PREFIX
from firesteel.config.option import Option
from firesteel.config.options import ALL_OPTIONS

_HEAD = f"""# Configuration

Options have Flink's keys, defaults and text forms where Flink has them; the others begin with `firesteel.`.

They are taken from these places; the later ones win:

1. the defaults below;
2. `{CONFIG_FILE}` in the directory that the environment variable `{CONF_DIR_VARIABLE}` names, nested or flat:
   `rest.port: 8082`, or `rest:` with `port: 8082` below it;
3. environment variables: `{ENVIRONMENT_PREFIX}REST_PORT=8082` sets `rest.port` (upper case, every character that is
   neither letter nor digit becomes `_`);
4. the command line: `-Drest.port=8082`;
5. the program: `Configuration`, `env.configure(...)`;
6. what an operator of the program says itself, such as `set_parallelism`.

Text forms: durations `100 ms`, `10 s`, `1 min`, `PT0.1S` (a bare number is milliseconds); memory sizes `64mb`, `1 gb`
(powers of 1024; a bare number is bytes); lists `[a, b]` or `a;b`; maps `{{a: b}}` or `a:b,c:d`.

A key under `firesteel.` that does not exist, or a value of the wrong type, is refused before anything runs. Keys of
Flink that are not in the tables below have no effect and are named in one warning; so are keys that nobody knows.
Values of keys that look like secrets (`password`, `token`, `secret`, …) are shown as `******`.
"""
_LEAST = 3
"""Fewer options make no group of their own."""
_OTHERS = "Others"


def render() -> str:
    flink = [option for option in ALL_OPTIONS if not option.key.startswith("firesteel.")]
    firesteel = [option for option in ALL_OPTIONS if option.key.startswith("firesteel.")]
    renamed = [f"| `{former}` | `{current}` |" for former, current in sorted(RENAMED.items())]
    renamed += [f"| `{former}*` | `{current}*` |" for former, current in sorted(RENAMED_PREFIXES.items())]
    return "\n".join(
        [
            _HEAD,
            "## Options of Flink",
            "",
            *_groups(flink),
            "",
            "## Options of Firesteel",
            "",
            *_groups(firesteel),
            "",
            "## Old names that are understood",
            "",
            "| Old | New |",
            "| --- | --- |",
            *renamed,
            "",
        ]
    )


def _groups(options: list[Option[object]]) -> list[str]:
    """Renders tables of options below the beginning that their keys share."""
    tables: dict[str, list[Option[object]]] = {}
    for option in sorted(options, key=lambda declared: declared.key):
        tables.setdefault(_group(option.key, options), []).append(option)
    others = tables.pop(_OTHERS, [])
    lines = [line for group in sorted(tables) for line in ("", f"### `{group}`", "", *_table(tables[group]))]
    return [*lines[1:], "", f"### {_OTHERS}", "", *_table(others)]


def _group(key: str, options: list[Option[object]]) -> str:
    """Returns the longest beginning of at most three words that a key shares with enough others."""
    words = key.split(".")
    for count in range(min(3, len(words) - 1), 0, -1):
        group = ".".join(words[:count])
        if group != "firesteel" and sum(f"{option.key}.".startswith(f"{group}.") for option in options) >= _LEAST:
            return group
    return _OTHERS


def _table(options: list[Option[object]]) -> list[str]:
    lines = ["| Key | Default | Type | What it does |", "| --- | --- | --- | --- |"]
    for option in sorted(options, key=lambda declared: declared.key):
        default = "(none)" if option.default in (None, {}) else f"`{option.type.show(option.default)}`"
        doc = option.doc if not option.instead else f"{option.doc} Has no effect in this version: {option.instead}."
        if option.fallback_keys:
            doc += f" Falls back to {', '.join(f'`{key}`' for key in option.fallback_keys)}."
        lines.append(f"| `{option.key}` | {default} | {option.type.name} | {doc} |")
    return lines


if __name__ == "__main__":
    print(render(), end="")

"""The reference of all options, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from fcl.options.option import WITH_CONFIG, Option, Resume
from fcl.options.table import GROUPS, options_of_command

_HEAD = "| option | values | default | meaning |\n|---|---|---|---|"


def options_as_markdown(command: str | None = None) -> str:
    """List the options of a command, or of all commands (None), as Markdown.

    Each command has a section, with a table for each group of its options. A table has a row for each
    option: how it is spelled, which values it takes, its default and its meaning, and what resumed jobs
    and configuration files do with it.
    """
    commands = GROUPS if command is None else [command]
    return "\n\n".join(part for name in commands for part in _sections(name)) + "\n"


def _sections(command: str) -> Iterator[str]:
    yield f"## fcl {command}"
    yield "Beside these options: `--storage-option KEY=VALUE`, `--version` and `--help`."
    options = [
        o for o in options_of_command(command).values() if not (o.hidden or o.old) and o.help
    ]
    if command in WITH_CONFIG:
        yield (
            "*file*: a configuration (`--config`) may set the option. *fixed*: a resumed job keeps its "
            "value."
        )
    for group in GROUPS[command] or ("",):
        if group:
            yield f"### {group.capitalize()}"
        rows = [_row(option, command) for option in options if not group or option.group == group]
        yield "\n".join([_HEAD, *rows])


def _row(option: Option, command: str) -> str:
    marks = []
    if command in WITH_CONFIG and option.from_file:
        marks.append("file")
    if command in WITH_CONFIG and option.resume is Resume.FIXED:
        marks.append("fixed")
    meaning = option.help + (f" *{', '.join(marks)}*" if marks else "")
    name = f"`{option.spelled}`"
    if option.negates:
        name += f", `--no-{option.spelled[2:]}`"
    cells = (name, _values(option), _default(option), meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _values(option: Option) -> str:
    if isinstance(option.default, bool):
        return "flag"
    if option.kind.words:
        return ", ".join(f"`{word}`" for word in option.kind.words)
    return f"`{option.metavar or option.kind.name}`"


def _default(option: Option) -> str:
    default = option.default_of_command
    return "" if isinstance(default, bool) or default in (None, "") else f"`{default}`"

"""One page for each command, from what `--help` knows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from rosewood.cli import PANELS, commands

FOLDER = "reference/commands"
Command = TyperCommand | TyperGroup


def command_pages() -> dict[str, str]:
    """Path -> Markdown: an index of all commands and a page for each."""
    group = typer.main.get_command(commands())
    assert isinstance(group, TyperGroup)
    inside = _commands_of(group)
    pages = {f"{FOLDER}/{name}.md": command_page(name, command) for name, command in inside.items()}
    index = ["# Commands", "", _plain(group.help or ""), ""]
    for panel, names in PANELS.items():
        rows = [f"| [`{name}`]({name}.md) | {_plain(_short(inside[name]))} |" for name in names]
        index += [f"## {panel}", "", "| command | what it does |", "| --- | --- |", *rows, ""]
    return {f"{FOLDER}/index.md": "\n".join(index)} | pages


def _commands_of(group: TyperGroup) -> dict[str, Command]:
    return cast(dict[str, Command], group.commands)


def command_page(name: str, command: Command) -> str:
    """The page of a command; of a group of commands with all of them."""
    parts = [f"# rosewood {name}", *_body(f"rosewood {name}", command)]
    if isinstance(command, TyperGroup):
        for inner, each in _commands_of(command).items():
            parts += [f"## rosewood {name} {inner}", *_body(f"rosewood {name} {inner}", each)]
    return "\n\n".join(parts) + "\n"


def _body(path: str, command: Command) -> Iterator[str]:
    context = typer.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield _plain(inspect.cleandoc(command.help or ""))
    yield f"```\n{usage}\n```"
    arguments = [each for each in command.params if isinstance(each, TyperArgument)]
    options = [each for each in command.params if isinstance(each, TyperOption) and not each.hidden]
    if arguments:
        rows = [f"| {_names(each, context)} | {_cell(each.help or '')} |" for each in arguments]
        yield "\n".join(["| argument | what it is |", "| --- | --- |", *rows])
    if options:
        rows = [f"| {_names(each, context)} | {_default(each)} | {_cell(each.help or '')} |" for each in options]
        yield "\n".join(["| option | default | what it does |", "| --- | --- | --- |", *rows])
    if command.epilog:
        yield _epilog(command.epilog)


def _names(parameter: TyperOption | TyperArgument, context: typer.Context) -> str:
    """As `--help` has them, each word as code of its own, so that a line can break between them."""
    record = parameter.get_help_record(context)
    names = "" if record is None else record[0].strip("[]").replace(" range>", ">").replace("list[str]", "str")
    return " ".join(f"`{word}`" for word in names.split())


def _default(option: TyperOption) -> str:
    """As `--help` says it; nothing for what is off or absent."""
    if isinstance(option.show_default, str):
        return _cell(option.show_default)
    if option.required:
        return "required"
    if option.default is None or option.default is False or option.default in ((), []) or callable(option.default):
        return ""
    value = getattr(option.default, "value", option.default)
    return _cell(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _epilog(text: str) -> str:
    """Examples of a command: titles in bold, commands that follow each other as one block of code."""
    parts: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        line = _plain(" ".join(paragraph.split()))
        if not line.startswith(("rosewood ", "torchrun ", "#")):
            parts.append(line)
        elif parts and parts[-1].startswith("```"):
            parts[-1] = parts[-1].removesuffix("```") + f"{line}\n```"
        else:
            parts.append(f"```\n{line}\n```")
    return "\n\n".join(parts)


def _short(command: Command) -> str:
    return inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", r"\|")


def _plain(text: str) -> str:
    """Rich's markup as Markdown."""
    text = re.sub(r"\[bold\](.*?)\[/(?:bold)?\]", r"**\1**", text)
    text = re.sub(r"\[/?(?:dim|italic|cyan|green)\]|\[/\]", "", text)
    return text.replace(r"\[", "[").replace("<", "&lt;")

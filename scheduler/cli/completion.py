"""Completion scripts for shells, made from the command line's own parser."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class CommandWords:
    """A command such as `scheduler job list`, its verbs, and its options with their values."""

    path: str
    verbs: list[str] = field(default_factory=list)
    options: dict[str, list[str] | None] = field(default_factory=dict)  # None: no value; []: any value
    values: list[str] = field(default_factory=list)  # of a positional argument

    @property
    def words(self) -> str:
        """All words that can follow."""
        return " ".join((*self.verbs, *self.values, *self.options))


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell."""
    commands = list(_commands(parser, parser.prog))
    if shell == "fish":
        return "\n".join(_fish(commands))
    lines = list(_bash(commands))
    if shell == "zsh":
        lines = ["#compdef scheduler", "autoload -U +X bashcompinit && bashcompinit", *lines]
    return "\n".join(lines)


def _commands(parser: argparse.ArgumentParser, path: str) -> Iterator[CommandWords]:
    command = CommandWords(path)
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - nor a public type
            below = action.choices
            command.verbs.extend(below)
        elif not action.option_strings:
            command.values.extend(map(str, action.choices or ()))
        else:
            values = None if action.nargs == 0 else list(map(str, action.choices or ()))
            names = (name for name in action.option_strings if name.startswith("--"))
            command.options.update(dict.fromkeys(names, values))
    yield command
    for name, sub in below.items():
        yield from _commands(sub, f"{path} {name}")


def _bash(commands: list[CommandWords]) -> Iterator[str]:
    """Return a script for bash that also runs in zsh's bashcompinit."""
    yield "_scheduler() {"
    yield '    local path=scheduler words="" i'
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"'
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield '        case "$path ${COMP_WORDS[i]}" in'
    yield f"            {'|'.join(repr(command.path) for command in commands[1:])})"
    yield '                path="$path ${COMP_WORDS[i]}" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$path $previous" in'
    for command in commands:
        for option, values in command.options.items():
            if values is not None:
                yield f"        '{command.path} {option}') words='{' '.join(values) or '-'}' ;;"
    yield "    esac"
    yield '    if [ -z "$words" ]; then'
    yield '        case "$path" in'
    for command in commands:
        yield f"            '{command.path}') words='{command.words}' ;;"
    yield "        esac"
    yield "    fi"
    yield "    COMPREPLY=()"
    # A dash stands for any value.
    yield '    [ "$words" = - ] || COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _scheduler scheduler"


def _fish(commands: list[CommandWords]) -> Iterator[str]:
    yield "function __scheduler_path"
    yield "    set -l path scheduler"
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        switch "$path $word"'
    yield f"            case {' '.join(repr(command.path) for command in commands[1:])}"
    yield '                set path "$path $word"'
    yield "        end"
    yield "    end"
    yield "    echo $path"
    yield "end"
    for command in commands:
        here = f"complete -c scheduler -n 'test (__scheduler_path | string collect) = \"{command.path}\"'"
        if command.verbs or command.values:
            yield f"{here} -f -a '{' '.join((*command.verbs, *command.values))}'"
        for option, values in command.options.items():
            takes = "" if values is None else f" -x -a '{' '.join(values)}'" if values else " -r"
            yield f"{here} -l {option[2:]}{takes}"

"""Which subcommands and flags kubectl and tandem have, from their own help."""

import collections
import functools
import os
import re
import subprocess

import render

# A command that was parsed. `flags` has long names. `rest` follows "--".
Command = collections.namedtuple("Command", "verb flags words rest")


class Wrong(Exception):
    """A command that its program would refuse."""


def _output(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@functools.lru_cache(maxsize=None)
def _kubectl_flags(verb):
    """The flags of a subcommand and those of all: names, long and short, to (long name, if it is a
    switch)."""
    answer = _output(render.kubectl(), verb, "--help")
    if not re.search(r"^ *kubectl %s\b" % re.escape(verb), answer.stdout, re.MULTILINE):
        raise Wrong(f"kubectl has no subcommand {verb}")
    text = answer.stdout + _output(render.kubectl(), "options").stdout
    flags = {}
    for short, name, default in re.findall(r"^ +(?:-(\w), )?--([\w-]+)=(.*):", text, re.MULTILINE):
        entry = (name, default in ("true", "false"))
        flags["--" + name] = entry
        if short:
            flags["-" + short] = entry
    return flags


def parse_kubectl(words):
    """Splits the words after `kubectl`. Throws Wrong."""
    # A flag before the subcommand is one of all subcommands.
    place = 0
    while place < len(words) and words[place].startswith("-"):
        place += 1 if "=" in words[place] else 2
    if place >= len(words):
        raise Wrong("kubectl without a subcommand")
    known = _kubectl_flags(words[place])
    flags, others, rest = {}, [], []
    left = words[:place] + words[place + 1:]
    while left:
        word = left.pop(0)
        if word == "--":
            rest, left = left, []
        elif not word.startswith("-"):
            others.append(word)
        else:
            flag, equals, value = word.partition("=")
            if flag not in known:
                raise Wrong(f"kubectl {words[place]} has no {flag}")
            name, is_switch = known[flag]
            if not equals and not is_switch and not left:
                raise Wrong(f"kubectl {words[place]}: {flag} needs a value")
            flags[name] = value if equals else "true" if is_switch else left.pop(0)
    return Command(words[place], flags, others, rest)


def binary():
    """The program, None where it is not built."""
    path = os.environ.get("TANDEM") or str(render.ROOT / "build" / "tandem")
    return path if os.access(path, os.X_OK) else None


@functools.lru_cache(maxsize=None)
def _tandem_flags(subcommand):
    answer = _output(binary(), "help", subcommand)
    return None if answer.returncode else set(re.findall(r"--[a-z][a-z-]*", answer.stdout))


def tandem_findings(words):
    """What `tandem WORDS` has that its help does not list. Empty where the program is not built."""
    if not binary():
        return []
    known = _tandem_flags(words[0])
    if known is None:
        return [f"tandem has no command {words[0]}"]
    flags = [word.split("=")[0] for word in words if word.startswith("--")]
    return [f"tandem {words[0]} has no {flag}" for flag in flags if flag not in known]


def script_findings(words):
    """What a call of a script of this repository has that its usage does not list."""
    path = render.ROOT / words[0]
    if not os.access(path, os.X_OK):
        return [f"{words[0]} is no script of the repository"]
    known = set(re.findall(r"--?[a-z][a-z-]*", _output(path, "--help").stdout))
    return [f"{words[0]} has no {word}" for word in words[1:]
            if word.startswith("-") and word not in known]

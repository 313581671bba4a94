"""Finds what mini-clusters have left on this machine. As a program it prints a line for each."""

import os
import re
import sys
import tempfile

from .machine import CGROUPS, FOLDERS, command, controllers, mounts_below

# Every name has its cluster's number: tandem-br3, tdm3x1, tandem-3-1, tandem-minicluster-3-abc.
NUMBER = re.compile(r"(?:tandem-br|tdm|tandem-|" + FOLDERS + r")(\d+)")


def leftovers():
    """Returns a line for each thing whose mini-cluster has ended."""
    found = [(name, f"link {name}") for name in _links()]
    found += [(line.split()[0], f"network namespace {line.split()[0]}") for line in
              command("ip", "netns").stdout.splitlines() if line.startswith("tandem-")]
    for name in sorted(os.listdir(tempfile.gettempdir())):
        if name.startswith(FOLDERS):
            found += [(name, line) for line in _below(os.path.join(tempfile.gettempdir(), name))]
    for controller in sorted(controllers()) + [""]:
        parent = os.path.join(CGROUPS, controller)
        if os.path.isdir(parent):
            found += [(name, f"cgroup {os.path.join(parent, name)}")
                      for name in sorted(os.listdir(parent)) if re.fullmatch(r"tandem-\d+", name)]
    alive = _alive()
    return [line for name, line in found if NUMBER.match(name)
            and NUMBER.match(name).group(1) not in alive]


def _links():
    names = [line.split(":")[1].strip().split("@")[0]
             for line in command("ip", "-o", "link").stdout.splitlines()]
    return [name for name in names if re.fullmatch(r"tandem-br\d+|tdm\d+x\d+", name)]


def _below(folder):
    containers = os.path.join(folder, "runc")
    return ([f"folder {folder}"] + [f"mount {point}" for point in mounts_below(folder)]
            + [f"container {entry}" for entry in
               (os.listdir(containers) if os.path.isdir(containers) else [])])


def _alive():
    """Returns the numbers of clusters whose process lives: their bridges' aliases are its pid."""
    alive = set()
    for name in _links():
        if not name.startswith("tandem-br"):
            continue
        try:
            with open(f"/sys/class/net/{name}/ifalias") as file:
                pid = file.read().strip()
            with open(f"/proc/{pid}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue  # the bridge or its process is gone
        if state != "Z":
            alive.add(NUMBER.match(name).group(1))
    return alive


if __name__ == "__main__":
    lines = leftovers()
    print("\n".join(lines) or "nothing")
    sys.exit(1 if lines else 0)

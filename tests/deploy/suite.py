#!/usr/bin/python3
"""Runs the deployment's scenarios on a mini-cluster of this machine, or on a real cluster.

Prints a row for each thing shown. Exit codes: 0 nothing missed, or skipped with the reason;
1 something missed; 2 wrong arguments.
"""

import argparse
import importlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import render  # noqa: E402
from bench import Bench  # noqa: E402
from minicluster import cluster, machine  # noqa: E402
from table import Table  # noqa: E402

NAMES = ("cluster", "lost", "late", "same_pid", "badinput")
WITHOUT_CLUSTER = ("same_pid",)


def arguments():
    parser = argparse.ArgumentParser(description="Shows what Tandem does on a cluster.")
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--kubeconfig", metavar="FILE", help="run on this cluster")
    parser.add_argument("--image", metavar="NAME", help="the image that the cluster's nodes know")
    chosen = parser.parse_args()
    if (chosen.kubeconfig is None) != (chosen.image is None):
        parser.error("--kubeconfig and --image go together")
    return chosen


def missing(name, chosen):
    """Returns why a scenario cannot be run here, or None."""
    try:
        render.kubectl()
    except render.Skipped as why:
        return str(why)
    if name in WITHOUT_CLUSTER:
        return importlib.import_module(f"scenarios.{name}").missing()
    return cluster.missing() if chosen.kubeconfig is None else None


def say_limits():
    """Says which limits of the manifests this machine's cgroups do not hold."""
    for controller in sorted({"memory", "cpu"} - machine.controllers()):
        print(f"no limits on {controller}: this machine has no such cgroup controller")


def stop(*_):
    """Ends the suite in good order: a second signal does not disturb the removal of everything."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main():
    chosen = arguments()
    binary = os.path.abspath(os.environ.get("TANDEM") or render.ROOT / "build" / "tandem")
    if not os.access(binary, os.X_OK):
        print(f"suite.py: there is no program {binary}: build it, or set TANDEM", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    table = Table()
    work = tempfile.mkdtemp(prefix="tandem-suite-")
    try:
        # A build in the meantime must not change what is tested.
        copied = shutil.copy(binary, pathlib.Path(work) / "tandem")
        for name in chosen.names:
            why = missing(name, chosen)
            if why is not None:
                print(f"[  SKIPPED ] {name}: {why}")
                continue
            folder = os.path.join(work, name)
            os.mkdir(folder)
            if chosen.kubeconfig is None:
                say_limits()
            bench = Bench(table, str(copied), folder, chosen.kubeconfig, chosen.image)
            importlib.import_module(f"scenarios.{name}").run(bench)
            if bench.imitation and name not in WITHOUT_CLUSTER:
                bench.nothing_is_left(name)
    except KeyboardInterrupt:
        print("suite.py: stopped", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)
    table.print()
    return 1 if table.num_missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs commands of this machine and knows what the mini-cluster needs of it."""

import os
import shutil
import subprocess

TOOLS = {"runc": "runc", "ip": "iproute2", "mount": "mount", "umount": "mount"}
CGROUPS = "/sys/fs/cgroup"
FOLDERS = "tandem-minicluster-"  # how folders of mini-clusters are named


class ClusterError(Exception):
    """A manifest or this machine is not as the mini-cluster needs it."""


def command(*words, check=True, stdin=None, timeout=60):
    """Runs a command to its end. Raises ClusterError with the command's own words if it fails."""
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise ClusterError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done


def missing():
    """Returns why this machine cannot run containers, or None if it can."""
    if os.geteuid() != 0:
        return "not root: namespaces and mounts need it"
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return f"{tool} is not installed (Debian package {package})"
    # A namespace of each kind and a bridge are made once, and removed at once.
    if subprocess.run(["unshare", "-mpunf", "true"], capture_output=True).returncode != 0:
        return "this machine allows no new namespaces"
    probe = f"tdmprobe{os.getpid() % 100000}"
    made = command("ip", "link", "add", probe, "type", "bridge", check=False)
    command("ip", "link", "del", probe, check=False)
    if made.returncode != 0:
        return f"this machine makes no bridge: {made.stderr.strip()}"
    return None


def controllers():
    """Returns the cgroup controllers that runc can use here: names such as memory, cpu."""
    unified = os.path.join(CGROUPS, "cgroup.controllers")
    if os.path.exists(unified):
        with open(unified) as file:
            return set(file.read().split())
    if not os.path.isdir(CGROUPS):
        return set()
    return {name for name in os.listdir(CGROUPS)
            if os.path.exists(os.path.join(CGROUPS, name, "cgroup.procs"))}


def remove_cgroups(name):
    """Removes the cgroups of that name and of all below it. REQUIRES: no process is in them."""
    for parent in [CGROUPS] + [os.path.join(CGROUPS, c) for c in sorted(controllers())]:
        top = os.path.join(parent, name)
        for folder, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass


def mounts_below(folder):
    """Returns the mount points in or at a folder, the deepest first."""
    found = []
    with open("/proc/self/mountinfo") as table:
        for line in table:
            point = line.split()[4].replace("\\040", " ")
            if point == folder or point.startswith(folder + "/"):
                found.append(point)
    return sorted(found, key=len, reverse=True)


def quantity(text):
    """Returns a Kubernetes quantity such as 512Mi, 1500m or 2 as a number."""
    text = str(text)
    scales = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
              "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    for suffix, scale in scales.items():
        if text.endswith(suffix):
            return float(text[:-len(suffix)]) * scale
    return float(text)

"""Turns a container of a manifest into runc's config.json."""

import base64
import re

from .image import bind
from .machine import ClusterError, controllers, quantity
from .volumes import NotThereYet

# Capabilities that container runtimes leave a container whose manifest does not drop them.
DEFAULT_CAPABILITIES = ["CAP_" + name for name in """AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID
    KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT""".split()]
SYSTEM_MOUNTS = [
    ("proc", "/proc", "proc", []),
    ("tmpfs", "/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
    ("devpts", "/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666"]),
    ("shm", "/dev/shm", "tmpfs", ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
    ("mqueue", "/dev/mqueue", "mqueue", ["nosuid", "noexec", "nodev"]),
    ("sysfs", "/sys", "sysfs", ["nosuid", "noexec", "nodev", "ro"]),
]
MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def expand(text, env):
    """Replaces $(NAME) by its value. Leaves unknown names, and turns $$ into $."""
    def value(match):
        if match.group(0) == "$$":
            return "$"
        return env.get(match.group(1), match.group(0))
    return re.sub(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", value, text)


def environment(container, pod, objects):
    """Returns the variables that a container's manifest gives it, later ones using earlier."""
    env = {}
    namespace = pod["metadata"]["namespace"]

    def data(kind, name):
        if (kind, namespace, name) not in objects:
            raise NotThereYet(f"{kind} {namespace}/{name} does not exist")
        return objects[(kind, namespace, name)].get("data", {})

    for source in container.get("envFrom", []):
        env.update(data("ConfigMap", source["configMapRef"]["name"]))
    for entry in container.get("env", []):
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            env[entry["name"]] = field(pod, source["fieldRef"]["fieldPath"])
        elif "configMapKeyRef" in source:
            ref = source["configMapKeyRef"]
            env[entry["name"]] = data("ConfigMap", ref["name"])[ref["key"]]
        elif "secretKeyRef" in source:
            ref = source["secretKeyRef"]
            env[entry["name"]] = base64.b64decode(data("Secret", ref["name"])[ref["key"]]).decode()
        else:
            env[entry["name"]] = expand(entry.get("value", ""), env)
    return env


def field(pod, path):
    """Returns the field of a pod that a fieldRef names, such as metadata.labels['app']."""
    in_brackets = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if in_brackets:
        return pod["metadata"].get(in_brackets.group(1), {}).get(in_brackets.group(2), "")
    known = {"metadata.name": pod["metadata"]["name"],
             "metadata.namespace": pod["metadata"]["namespace"],
             "spec.nodeName": "minicluster", "status.podIP": pod["status"].get("podIP", "")}
    if path not in known:
        raise ClusterError(f"fieldRef {path} is not known to the mini-cluster")
    return known[path]


def security(container, pod):
    """Returns the security context of a container: its own fields before those of the pod."""
    merged = dict(pod["spec"].get("securityContext", {}))
    merged.update(container.get("securityContext", {}))
    uid = merged.get("runAsUser", 0)
    if merged.get("runAsNonRoot") and uid == 0:
        raise ClusterError("container has runAsNonRoot and would run as root")
    groups = list(merged.get("supplementalGroups", []))
    if "fsGroup" in merged:
        groups.append(merged["fsGroup"])
    dropped = [name.upper() for name in merged.get("capabilities", {}).get("drop", [])]
    kept = [] if "ALL" in dropped else [c for c in DEFAULT_CAPABILITIES if c[4:] not in dropped]
    sets = {"bounding": kept}
    if uid == 0:
        sets.update(effective=kept, permitted=kept)
    return {"user": {"uid": uid, "gid": merged.get("runAsGroup", 0), "additionalGids": groups},
            "capabilities": sets,
            "noNewPrivileges": not merged.get("allowPrivilegeEscalation", True),
            "readonly": merged.get("readOnlyRootFilesystem", False)}


def limits(container):
    """Returns the limits of a container that this machine's cgroups can hold."""
    wanted = container.get("resources", {}).get("limits", {})
    here = controllers()
    resources = {"devices": [{"allow": False, "access": "rwm"}]} if "devices" in here else {}
    if "memory" in wanted and "memory" in here:
        resources["memory"] = {"limit": int(quantity(wanted["memory"]))}
    if "cpu" in wanted and "cpu" in here:
        resources["cpu"] = {"period": 100000, "quota": int(quantity(wanted["cpu"]) * 100000)}
    return resources


def config(container, pod, env, mounts, root, space, cgroup):
    """Returns config.json. `mounts` are those of the image, the pod's files and its volumes."""
    rights = security(container, pod)
    words = container.get("command", []) + container.get("args", [])
    if not words:
        raise ClusterError(f"container {container['name']} has no command; images have none here")
    env = {"PATH": PATH, "HOSTNAME": pod["spec"]["hostname"], "HOME": "/tmp", **env}
    system = [{"source": source, "destination": at, "type": kind, "options": options}
              for source, at, kind, options in SYSTEM_MOUNTS]
    # Outer mount points come before those inside them, such as /dev before /dev/termination-log.
    mounts = sorted(system + mounts, key=lambda m: (m["destination"].count("/")))
    return {
        "ociVersion": "1.0.2",
        "process": {"terminal": False, "user": rights["user"],
                    "args": [expand(word, env) for word in words],
                    "env": [f"{name}={value}" for name, value in env.items()],
                    "cwd": container.get("workingDir", "/"),
                    "capabilities": rights["capabilities"],
                    "noNewPrivileges": rights["noNewPrivileges"]},
        "root": {"path": root, "readonly": rights["readonly"]},
        "hostname": pod["spec"]["hostname"],
        "mounts": mounts,
        "linux": {"cgroupsPath": cgroup, "resources": limits(container),
                  "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
                  + [{"type": "network", "path": f"/run/netns/{space}"}],
                  "maskedPaths": MASKED, "readonlyPaths": READ_ONLY},
    }


def bind_volumes(container, volumes):
    found = []
    for mount in container.get("volumeMounts", []):
        source, read_only = volumes.source(mount)
        found.append(bind(source, mount["mountPath"], read_only))
    return found

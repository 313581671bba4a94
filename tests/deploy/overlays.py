"""An overlay's render as rules look at it: objects, roles and pods."""

import collections
import copy
import re

import yaml

import render

ROLES = ("master", "ps", "trainer")
LOCAL_IMAGE = "tandem:local"

# A Job of its own or one of a JobSet. `where` says so in findings. `host` begins the pods' names.
Role = collections.namedtuple("Role", "name where host job pod labels")
# Any pod: a role's, or one without a Job.
Pod = collections.namedtuple("Pod", "where spec labels")


class Overlay:
    """The objects of an overlay and of the pod beside it that copies files."""

    def __init__(self, name, objects):
        self.name = name
        self.objects = objects

    def copied(self):
        return Overlay(self.name, copy.deepcopy(self.objects))

    def of(self, kind):
        return [item for item in self.objects if item["kind"] == kind]

    def find(self, kind, name):
        for item in self.of(kind):
            if item["metadata"]["name"] == name:
                return item
        return None

    def roles(self):
        found = []
        for item in self.of("Job"):
            name = item["metadata"]["name"]
            found.append(_role(name, f"Job {name}", name, item["spec"]))
        for item in self.of("JobSet"):
            whole = item["metadata"]["name"]
            for job in item["spec"]["replicatedJobs"]:
                name = job["name"]
                where = f"JobSet {whole} {name}"
                found.append(_role(name, where, f"{whole}-{name}-0", job["template"]["spec"]))
        return found

    def role(self, name):
        return next(role for role in self.roles() if role.name == name)

    def pods(self):
        alone = [Pod(f"Pod {item['metadata']['name']}", item["spec"], item["metadata"]["labels"])
                 for item in self.of("Pod")]
        return [Pod(role.where, role.pod, role.labels) for role in self.roles()] + alone

    def containers(self):
        """Pairs of where and container, init containers too."""
        for pod in self.pods():
            for container in containers(pod.spec):
                yield f"{pod.where} {container['name']}", container

    def job_file(self):
        """The text of the job file, "" without one."""
        for item in self.of("ConfigMap"):
            if "job.textproto" in item.get("data", {}):
                return item["data"]["job.textproto"]
        return ""

    def is_local(self):
        """Made for one machine: its image has no registry."""
        return all(container["image"] == LOCAL_IMAGE for _, container in self.containers())


def _role(name, where, host, spec):
    template = spec["template"]
    return Role(name, where, host, spec, template["spec"], template["metadata"].get("labels", {}))


def load(name):
    objects = list(yaml.safe_load_all(render.render(name)))
    if f"{name}/files" in render.renders():
        objects += list(yaml.safe_load_all(render.render(f"{name}/files")))
    return Overlay(name, objects)


def named(item):
    """How findings name an object."""
    return f"{item['kind']} {item['metadata']['name']}"


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def main_container(role):
    return next(item for item in role.pod["containers"] if item["name"] == role.name)


def flag(role, name):
    """The value of --NAME in a role's arguments, None without it."""
    for argument in main_container(role).get("args", []):
        if argument.startswith(f"--{name}="):
            return argument.split("=", 1)[1]
    return None


def selects(selector, labels):
    """If a LabelSelector of matchLabels selects `labels`. An empty one selects all."""
    wanted = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items())


def megabytes(quantity):
    """A quantity of memory, in MiB."""
    match = re.fullmatch(r"(\d+)(Mi|Gi)", str(quantity))
    if not match:
        raise ValueError(f"memory {quantity} is neither Mi nor Gi")
    return int(match[1]) * (1024 if match[2] == "Gi" else 1)


def probes(container):
    """Pairs of the probe's name and the probe."""
    names = ("startupProbe", "livenessProbe", "readinessProbe")
    return [(name, container[name]) for name in names if name in container]

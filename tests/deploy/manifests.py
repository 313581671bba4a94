"""Takes rendered overlays as objects, and changes them in memory where a test needs it."""

import copy

import yaml

from render import render

ROLES = ("master", "ps", "trainer")
LAUNCH_TAKES = ("--ps=", "--trainers=", "--dp=", "--tp=", "--pp=", "--zero=", "--set=")


def overlay(name):
    """Returns the objects of an overlay, in the order in which kubectl applies them."""
    return [item for item in yaml.safe_load_all(render(name)) if item]


def job(objects, role):
    return next(o for o in objects if o["kind"] == "Job" and o["metadata"]["name"] == role)


def container(objects, role):
    return job(objects, role)["spec"]["template"]["spec"]["containers"][0]


def with_args(objects, *args, roles=ROLES):
    """Returns a copy whose roles have further arguments."""
    objects = copy.deepcopy(objects)
    for role in roles:
        container(objects, role)["args"] += args
    return objects


def without_arg(objects, start, roles=ROLES):
    """Returns a copy whose roles lack the arguments that begin so."""
    objects = copy.deepcopy(objects)
    for role in roles:
        kept = container(objects, role)
        kept["args"] = [arg for arg in kept["args"] if not arg.startswith(start)]
    return objects


def for_one_node(objects):
    """Returns a copy that fits a small cluster of one node: claims of one node, small requests."""
    objects = copy.deepcopy(objects)
    for item in objects:
        if item["kind"] == "PersistentVolumeClaim":
            item["spec"]["accessModes"] = ["ReadWriteOnce"]
    for role in ROLES:
        container(objects, role)["resources"]["requests"] = {"cpu": "50m", "memory": "64Mi"}
    return objects


def job_file_map(objects):
    """Returns the ConfigMap that holds the job file."""
    return next(o for o in objects if o["kind"] == "ConfigMap" and "job.textproto" in o["data"])


def job_file(objects):
    return job_file_map(objects)["data"]["job.textproto"]


def launch_args(objects):
    """Returns those arguments of the trainers that `tandem launch` takes too."""
    return [arg for arg in container(objects, "trainer")["args"] if arg.startswith(LAUNCH_TAKES)]


def synthesize_args(objects):
    """Returns the arguments of the init container that makes data, without --out."""
    for init in job(objects, "trainer")["spec"]["template"]["spec"].get("initContainers", []):
        if "synthesize" in init["args"]:
            return [arg for arg in init["args"] if not arg.startswith("--out")]
    return None


def volumes(objects, role):
    """Returns a role's volumes. Changing them changes the objects."""
    return job(objects, role)["spec"]["template"]["spec"]["volumes"]

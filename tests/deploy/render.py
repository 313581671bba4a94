"""Renders the overlays of deploy/k8s with kubectl, as `kubectl apply -k` would."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "deploy" / "k8s"
GOLDEN = ROOT / "tests" / "deploy" / "golden"
OLDEST = (1, 27)  # before it, kustomize knows no components


class Skipped(Exception):
    """The machine lacks what the test needs. The text says what."""


@functools.lru_cache(maxsize=None)
def kubectl():
    """The path of a kubectl that is new enough."""
    wanted = os.environ.get("TANDEM_KUBECTL", "kubectl")
    path = shutil.which(wanted)
    if not path:
        raise Skipped(f"no {wanted}: kubectl renders the manifests")
    answer = subprocess.run([path, "version", "--client", "-o", "json"], capture_output=True,
                            text=True, timeout=60)
    match = re.search(r'"gitVersion":\s*"v(\d+)\.(\d+)', answer.stdout)
    if not match:
        raise Skipped(f"{path} does not say its version: {answer.stderr.strip()[:200]}")
    version = tuple(map(int, match.groups()))
    if version < OLDEST:
        raise Skipped("kubectl %d.%d: renders no components; %d.%d or later is needed" %
                      (version + OLDEST))
    return path


def overlays():
    """Names of all overlays, in order."""
    return sorted(path.name for path in (SOURCE / "overlays").iterdir() if path.is_dir())


def renders():
    """Names of all that users apply: overlays, and the pods beside them that copy files."""
    pods = [f"{name}/files" for name in overlays()
            if (SOURCE / "overlays" / name / "files").is_dir()]
    return overlays() + pods


@functools.lru_cache(maxsize=None)
def _copy():
    """A copy of deploy/k8s with secrets as users make them. Their hash is in names."""
    folder = tempfile.TemporaryDirectory(prefix="tandem-k8s-")
    copy = pathlib.Path(folder.name) / "k8s"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("secret"))
    for overlay in (copy / "overlays").iterdir():
        (overlay / "secret").write_text("the-secret-of-the-golden-files\n")
    return folder, copy


@functools.lru_cache(maxsize=None)
def render(name):
    """The YAML that `kubectl kustomize deploy/k8s/overlays/NAME` prints."""
    folder = _copy()[1] / "overlays" / name
    answer = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True,
                            timeout=60)
    if answer.returncode:
        raise RuntimeError(f"overlay {name} does not render: {answer.stderr.strip()}")
    return answer.stdout


def golden_file(name):
    return GOLDEN / (name.replace("/", "-") + ".yaml")


def openapi():
    """The official definitions of the kinds in use."""
    data = pathlib.Path(os.environ.get("TANDEM_TEST_DATA") or ROOT.parent / "shared")
    path = data / "k8s" / "openapi-v1.32-subset.json"
    if not path.is_file():
        raise Skipped(f"no {path}: no schema to hold the manifests to")
    return json.loads(path.read_text())["definitions"]

"""Drives a real cluster by kubectl and a kubeconfig."""

import copy
import json
import subprocess
import threading
import time

import yaml

from driver import Driver, conditions
from render import kubectl

LABEL = "app.kubernetes.io/name=tandem"
READER_SECONDS = "3600"


class KubectlDriver(Driver):
    """A namespace of a real cluster. Every container gets `image`.

    A failed Job deletes its other pods, and their messages with them. So a thread watches all pods
    and remembers what they have said last.
    """

    def __init__(self, kubeconfig, image, namespace):
        super().__init__(namespace)
        self._kubectl = [kubectl(), "--kubeconfig", kubeconfig, "--namespace", namespace]
        self._image = image
        self._applied = []
        self._readers = set()
        self._messages = {}
        self._closed = threading.Event()
        self._watch = None
        self._watcher = threading.Thread(target=self._remember, daemon=True)
        self._namespace_is_ours = self._run("get", "namespace", namespace).returncode != 0
        if self._namespace_is_ours:
            self._check("create", "namespace", namespace)
        self._watcher.start()

    def apply(self, objects, holds=None):
        if holds:
            raise NotImplementedError("no pod of a real cluster can be held back")
        objects = copy.deepcopy(objects)
        for item in objects:
            pod = item["spec"]["template"]["spec"] if item["kind"] == "Job" else {}
            for container in pod.get("initContainers", []) + pod.get("containers", []):
                container["image"] = self._image
        self._check("apply", "--filename", "-", stdin=yaml.safe_dump_all(objects))
        self._applied += [(item["kind"], item["metadata"]["name"]) for item in objects]

    def get(self, kind, name):
        done = self._run("get", kind, name, "--output", "json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def delete(self, kind, name):
        self._check("delete", kind, name, "--cascade=foreground", "--timeout=120s")

    def pods(self):
        text = self._check("get", "pods", "--selector", LABEL, "--output", "json")
        return json.loads(text)["items"]

    def logs(self, pod, container=None):
        chosen = ["--container", container] if container else []
        return self._check("logs", pod, *chosen)

    def exec(self, pod, command, container=None, stdin=None):
        chosen = ["--container", container] if container else []
        done = self._run("exec", *(["--stdin"] if stdin is not None else []), pod, *chosen, "--",
                         *command, stdin=stdin)
        return done.returncode, done.stdout

    def kill(self, pod, container=None):
        self._check("delete", "pod", pod, "--force", "--grace-period=0")

    def messages(self):
        return dict(self._messages)

    def wait(self, jobs, condition, timeout):
        return bool(self.wait_for(
            lambda: all(condition in conditions(self.get("Job", name)) for name in jobs),
            timeout, every=1))

    def read_claim(self, claim, path):
        code, text = self.exec(self._reader(claim), ["cat", f"/claim/{path}"])
        if code != 0:
            raise FileNotFoundError(f"{path} of claim {claim}: {text}")
        return text.encode()

    def list_claim(self, claim, path):
        code, text = self.exec(self._reader(claim), ["ls", f"/claim/{path}"])
        return text.split() if code == 0 else []

    def write_claim(self, claim, path, data):
        code, text = self.exec(self._reader(claim), ["sh", "-c", f"cat > /claim/{path}"],
                               stdin=data.decode())
        if code != 0:
            raise RuntimeError(f"{path} of claim {claim} could not be written: {text}")

    def close(self):
        self._closed.set()
        if self._watch is not None:
            self._watch.kill()
        for claim in sorted(self._readers):
            self._run("delete", "pod", f"reader-{claim}", "--force", "--grace-period=0")
        # Jobs first: a claim stays as long as a pod mounts it.
        for kind, name in sorted(set(self._applied), key=lambda entry: entry[0] != "Job"):
            if kind != "Namespace":
                self._run("delete", kind, name, "--cascade=foreground", "--ignore-not-found",
                          "--timeout=120s")
        if self._namespace_is_ours:
            self._run("delete", "namespace", self.namespace, "--timeout=120s")

    def _run(self, *words, stdin=None):
        return subprocess.run([*self._kubectl, *words], input=stdin, capture_output=True, text=True)

    def _check(self, *words, stdin=None):
        done = self._run(*words, stdin=stdin)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _reader(self, claim):
        """Returns the name of a pod that mounts a claim at /claim; makes it first."""
        name = f"reader-{claim}"
        if claim not in self._readers:
            self._check("apply", "--filename", "-", stdin=yaml.safe_dump(
                reader_pod(name, self._image, claim)))
            self._readers.add(claim)
            self._check("wait", "pod", name, "--for=condition=Ready", "--timeout=120s")
        return name

    def _remember(self):
        while not self._closed.is_set():
            self._watch = subprocess.Popen([*self._kubectl, "get", "pods", "--watch", "--output",
                                            "json"], stdout=subprocess.PIPE,
                                           stderr=subprocess.DEVNULL, text=True)
            text = ""
            for line in self._watch.stdout:
                text += line
                if line.rstrip() == "}":  # the end of an object
                    found = json.loads(text)
                    text = ""
                    for pod in found["items"] if "items" in found else [found]:
                        self._keep(pod)
            self._watch.wait()
            time.sleep(1)

    def _keep(self, pod):
        for status in pod.get("status", {}).get("containerStatuses", []):
            message = status.get("state", {}).get("terminated", {}).get("message")
            if message:
                self._messages[pod["metadata"]["name"]] = message


def reader_pod(name, image, claim):
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532,
                                "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "reader", "image": image,
                            "command": ["sleep", READER_SECONDS], "securityContext": security,
                            "volumeMounts": [{"name": "claim", "mountPath": "/claim"}]}],
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": claim}}]}}

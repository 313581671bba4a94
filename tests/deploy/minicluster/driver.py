"""Lets the suite drive the mini-cluster as it drives a real one."""

import copy
import os
import time

from driver import Driver, conditions

from .cluster import Cluster
from .machine import ClusterError
from .volumes import make_claim


class MiniDriver(Driver):
    """A cluster of this machine. `binary` stands for every image."""

    imitation = True

    def __init__(self, binary, namespace, dns_delay=0.5):
        super().__init__(namespace)
        self._cluster = Cluster(binary, dns_delay)

    def apply(self, objects, holds=None):
        placed = []
        for item in objects:
            item = copy.deepcopy(item)
            if item["kind"] != "Namespace":
                item["metadata"].setdefault("namespace", self.namespace)
            placed.append(item)
        self._cluster.apply(placed, holds)

    def get(self, kind, name):
        if kind == "Job":
            job = self._cluster.jobs.get((self.namespace, name))
            return copy.deepcopy(job.manifest) if job else None
        if kind == "Pod":
            return next((pod for pod in self.pods() if pod["metadata"]["name"] == name), None)
        return copy.deepcopy(self._cluster.objects.get((kind, self.namespace, name)))

    def delete(self, kind, name):
        self._cluster.delete(kind, self.namespace, name)

    def pods(self):
        return [pod.api_object() for pod in self._cluster.pods()]

    def logs(self, pod, container=None):
        return self._pod(pod).container(container).read_log()

    def exec(self, pod, command, container=None):
        return self._pod(pod).container(container).execute(command)

    def kill(self, pod, container=None):
        self._pod(pod).container(container).signal("KILL")

    def messages(self):
        found = {}
        for pod in self._cluster.pods(removed=True):
            for status in pod.api_object()["status"]["containerStatuses"]:
                text = status["state"].get("terminated", {}).get("message")
                if text:
                    found[pod.name] = text
        return found

    def wait(self, jobs, condition, timeout):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self._cluster.error is not None:
                raise ClusterError(f"the mini-cluster broke: {self._cluster.error!r}")
            if all(condition in conditions(self.get("Job", name)) for name in jobs):
                return True
            time.sleep(0.2)
        return False

    def read_claim(self, claim, path):
        with open(os.path.join(self._folder(claim), path), "rb") as file:
            return file.read()

    def list_claim(self, claim, path):
        folder = os.path.join(self._folder(claim), path)
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def write_claim(self, claim, path, data):
        make_claim(self._folder(claim))
        with open(os.path.join(self._folder(claim), path), "wb") as file:
            file.write(data)

    def _folder(self, claim):
        return os.path.join(self._cluster.claims, self.namespace, claim)

    def said(self):
        """Returns what the node had to say: lines for people."""
        return [f"{pod}: {words}" for pod, words in self._cluster.log]

    def close(self):
        self._cluster.close()

    def _pod(self, name):
        for pod in reversed(self._cluster.pods(removed=True)):
            if pod.name == name:
                return pod
        raise ClusterError(f"there is no pod {name}")

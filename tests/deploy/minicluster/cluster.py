"""Keeps the objects that were applied, and the node that runs them. Leaves nothing behind."""

import copy
import os
import shutil
import tempfile
import threading
import time

from . import fields, machine, probes
from .image import Image
from .jobs import Job
from .machine import FOLDERS, ClusterError, command, mounts_below
from .names import Names
from .network import Network

CONTROL_SECONDS = 1.0  # a controller hears of a pod's end about so late in a real cluster


def missing():
    """Returns why the mini-cluster cannot run here, or None if it can."""
    return machine.missing() or probes.missing()


class Cluster:
    """A control plane and a node. Use as a context: its end removes all that was made."""

    def __init__(self, binary, dns_delay=0.5):
        self.objects = {}  # (kind, namespace, name) -> object
        self.jobs = {}     # (namespace, name) -> Job
        self.removed_pods = []
        self.log = []      # words of the node: (pod, words)
        self.error = None  # what a thread of the cluster died of
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self.network = Network()
        self.prefix = f"tandem-{self.network.slot}"
        self.folder = tempfile.mkdtemp(prefix=f"{FOLDERS}{self.network.slot}-")
        os.chmod(self.folder, 0o755)
        self.runc_root = os.path.join(self.folder, "runc")
        self.claims = os.path.join(self.folder, "claims")
        self.image = Image(os.path.join(self.folder, "image"), binary)
        self.names = Names(dns_delay)
        self._controller = threading.Thread(target=self._control, daemon=True)
        self._controller.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def say(self, pod, words):
        self.log.append((pod, words))

    def service_of(self, pod):
        """Returns the headless Service that gives a pod its name, or None."""
        meta, subdomain = pod["metadata"], pod["spec"].get("subdomain")
        service = self.objects.get(("Service", meta["namespace"], subdomain))
        if service is None:
            return None
        wanted = service["spec"].get("selector", {})
        labels = meta.get("labels", {})
        return service if all(labels.get(k) == v for k, v in wanted.items()) else None

    def apply(self, objects, holds=None):
        """Takes rendered objects. `holds`: seconds for which the pod of a host name is pending."""
        fields.check(objects)
        # Jobs come last: their pods mount the others.
        for item in sorted(objects, key=lambda item: item["kind"] == "Job"):
            item = copy.deepcopy(item)
            name = item["metadata"]["name"]
            namespace = item["metadata"].setdefault("namespace", "default")
            with self._lock:
                old = self.objects.get((item["kind"], namespace, name))
                if item["kind"] == "Job" and old is not None:
                    if old["spec"] != item["spec"]:
                        raise ClusterError(f"Job {name}: spec.template: field is immutable")
                    continue
                self.objects[(item["kind"], namespace, name)] = item
                if item["kind"] == "Job":
                    self.jobs[(namespace, name)] = Job(item, self, holds or {})

    def delete(self, kind, namespace, name):
        """Removes an object; of a Job the pods too, which are given their grace period."""
        with self._lock:
            if self.objects.pop((kind, namespace, name), None) is None:
                raise ClusterError(f"{kind} {namespace}/{name} not found")
            job = self.jobs.pop((namespace, name), None) if kind == "Job" else None
        if job is not None:
            job.stop()
            for pod in job.pods:
                pod.ended.wait()
                pod.removed = True
            self.removed_pods += job.pods
        if kind == "PersistentVolumeClaim":
            shutil.rmtree(os.path.join(self.claims, namespace, name), ignore_errors=True)

    def pods(self, removed=False):
        """Returns the pods that the API shows; with `removed` also those that it has forgotten."""
        with self._lock:
            found = [pod for job in self.jobs.values() for pod in job.pods]
            found += self.removed_pods if removed else []
        return [pod for pod in found if removed or not (pod.removed and pod.ended.is_set())]

    def close(self):
        """Kills all pods at once, and removes every file, mount, network and cgroup."""
        self._closed.set()
        self._controller.join()
        for pod in self.pods(removed=True):
            pod.kill()
        for pod in self.pods(removed=True):
            pod.ended.wait(60)
        self.names.close()
        for point in mounts_below(self.folder):
            command("umount", "-l", point, check=False)
        machine.remove_cgroups(self.prefix)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.network.close()  # last, for the bridge says that the cluster lives

    def _control(self):
        try:
            while not self._closed.wait(CONTROL_SECONDS):
                with self._lock:
                    for job in self.jobs.values():
                        job.step()
        except Exception as error:  # told to whoever waits for a Job
            self.error = error

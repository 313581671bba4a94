"""Runs one pod from its creation to its end, as a kubelet does."""

import copy
import os
import threading
import time

from . import bundle
from .container import Container, now
from .image import bind
from .machine import ClusterError
from .probes import Prober
from .volumes import NotThereYet, Volumes

POLL_SECONDS = 0.1


class Pod(threading.Thread):
    """A pod and the thread that runs it. `manifest` has metadata and spec, with a hostname.

    `hold` seconds pass before the pod is given to the node: it is Pending, as where no node has
    room. The pod counts as ended when its containers, its network and its volumes are gone.
    """

    def __init__(self, manifest, node, hold=0):
        super().__init__(daemon=True)
        self.manifest = copy.deepcopy(manifest)
        self.manifest["status"] = {"phase": "Pending"}
        self.name = manifest["metadata"]["name"]
        self.removed = False  # the API no longer shows the pod
        self.ended = threading.Event()
        self._node = node
        self._hold = hold
        self._stop_asked = threading.Event()
        self._grace = manifest["spec"].get("terminationGracePeriodSeconds", 30)
        self._dead = None
        self._inits, self._containers = [], []
        self._folder = os.path.join(node.folder, "pods", self.name)
        self._volumes = None
        self._space = None
        self._published = False

    @property
    def phase(self):
        return self.manifest["status"]["phase"]

    def api_object(self):
        """Returns the pod as the Kubernetes API would show it."""
        shown = copy.deepcopy(self.manifest)
        for key, group in (("initContainerStatuses", self._inits),
                           ("containerStatuses", self._containers)):
            shown["status"][key] = [
                {"name": c.manifest["name"], "ready": c.ready, "restartCount": 0,
                 "state": copy.deepcopy(c.state)} for c in group]
        return shown

    def container(self, name=None):
        """Returns the container of that name; without a name, the first."""
        for container in self._containers + self._inits:
            if name in (None, container.manifest["name"]):
                return container
        raise ClusterError(f"pod {self.name} has no container {name or ''} that began")

    def stop(self):
        """Asks the pod to end: SIGTERM, and after the grace period SIGKILL."""
        self._stop_asked.set()

    def kill(self):
        """Ends the pod without a grace period."""
        self._grace = 0
        self._stop_asked.set()

    def run(self):
        failed = True
        try:
            failed = not self._run_to_end()
        except ClusterError as error:
            self._node.say(self.name, str(error))
            self.manifest["status"].update(reason="CreateContainerConfigError", message=str(error))
        except Exception as error:  # told to whoever waits for a Job
            self._node.error = error
        finally:
            self._clean_up()
            self.manifest["status"]["phase"] = "Failed" if failed else "Succeeded"
            self.ended.set()

    def _run_to_end(self):
        """Returns whether every container ended with 0."""
        if self._stop_asked.wait(self._hold) or not self._set_up():
            return False
        for manifest in self.manifest["spec"].get("initContainers", []):
            container = self._start(manifest, self._inits)
            self._wait([container])
            if container.exit_code != 0 or self._stop_asked.is_set():
                return False
        for manifest in self.manifest["spec"]["containers"]:
            self._start(manifest, self._containers)
        self.manifest["status"]["phase"] = "Running"
        probers = [self._prober(container) for container in self._containers]
        self._wait(self._containers)
        for prober in probers:
            prober.stop()
        return all(container.exit_code == 0 for container in self._containers)

    def _set_up(self):
        """Gives the pod a network, names and volumes. Returns False if it was stopped before."""
        os.makedirs(self._folder)
        self._space, address = self._node.network.attach()
        self.manifest["status"].update(podIP=address, startTime=now())
        spec, namespace = self.manifest["spec"], self.manifest["metadata"]["namespace"]
        self._node.names.add_file(self.name, os.path.join(self._folder, "hosts"), address,
                                  spec["hostname"], spec.get("subdomain"), namespace)
        self._publish(only_if_not_ready=True)
        while True:
            try:
                self._volumes = Volumes(spec, namespace, self._node.objects,
                                        os.path.join(self._folder, "volumes"), self._node.claims)
                return True
            except NotThereYet as what:
                self.manifest["status"]["message"] = str(what)
                if self._stop_asked.wait(1):
                    return False

    def _publish(self, only_if_not_ready=False):
        """Puts the pod's name into DNS. A Service says whether it wants pods that are not ready."""
        meta, spec = self.manifest["metadata"], self.manifest["spec"]
        service = self._node.service_of(self.manifest)
        if service is None or self._published:
            return
        if only_if_not_ready and not service["spec"].get("publishNotReadyAddresses"):
            return
        self._published = True
        self._node.names.publish(self.name, self.manifest["status"]["podIP"], spec["hostname"],
                                 spec["subdomain"], meta["namespace"])

    def _start(self, manifest, group):
        number = len(self._inits) + len(self._containers)
        folder = os.path.join(self._folder, f"container-{number}")
        name = f"{self._node.prefix}-{self.name}-{number}"
        container = Container(manifest, name, folder, self._node.runc_root,
                              f"/{self._node.prefix}/{self.name}-{number}")
        group.append(container)
        root = os.path.join(folder, "root")
        self._node.image.make_root(root)
        message_path = manifest.get("terminationMessagePath", "/dev/termination-log")
        mounts = self._node.image.mounts() + bundle.bind_volumes(manifest, self._volumes) + [
            bind(os.path.join(self._folder, "hosts"), "/etc/hosts", read_only=False),
            bind(container.message_file, message_path, read_only=False)]
        try:
            env = bundle.environment(manifest, self.manifest, self._node.objects)
            container.start(bundle.config(manifest, self.manifest, env, mounts, root, self._space,
                                          container.cgroup))
        except (ClusterError, NotThereYet, KeyError) as error:
            container.fail("CreateContainerConfigError", str(error))
        return container

    def _prober(self, container):
        def on_ready(ready):
            container.ready = ready
            if ready:
                self._publish()

        def on_dead(reason):
            self._node.say(self.name, reason)
            self._dead = reason

        prober = Prober(container.manifest, self.manifest["status"]["podIP"], on_ready, on_dead)
        prober.start()
        return prober

    def _wait(self, containers):
        """Waits until all have ended. Ends them when the pod is stopped or a probe gives up."""
        told = None
        while not all(container.ended for container in containers):
            if told is None and (self._stop_asked.is_set() or self._dead):
                told = time.monotonic()
                for container in containers:
                    container.signal("TERM")
            # `kill` may shorten the grace period while the pod ends.
            if told is not None and time.monotonic() >= told + self._grace:
                for container in containers:
                    container.signal("KILL")
            time.sleep(POLL_SECONDS)
            for container in containers:
                container.poll()

    def _clean_up(self):
        self._node.names.withdraw(self.name)
        for container in self._inits + self._containers:
            container.remove()
        if self._space is not None:
            self._node.network.detach(self._space)
        if self._volumes is not None:
            self._volumes.close()

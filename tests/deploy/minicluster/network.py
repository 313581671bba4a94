"""Gives each pod a network namespace and an address on a bridge of this machine."""

import os
import threading

from .machine import ClusterError, command

MAX_CLUSTERS = 32


class Network:
    """A bridge with a /24 of its own. A free slot number names all that belongs to one cluster."""

    def __init__(self):
        self._lock = threading.Lock()
        self._num_pods = 0
        self._attached = {}
        for slot in range(MAX_CLUSTERS):
            made = command("ip", "link", "add", f"tandem-br{slot}", "type", "bridge", check=False)
            if made.returncode == 0:
                self.slot = slot
                break
        else:
            raise ClusterError(f"no bridge could be made: {made.stderr.strip()}")
        self.bridge = f"tandem-br{self.slot}"
        command("ip", "link", "set", self.bridge, "alias", str(os.getpid()))
        command("ip", "addr", "add", f"10.199.{self.slot}.1/24", "dev", self.bridge)
        command("ip", "link", "set", self.bridge, "up")

    def attach(self):
        """Returns (namespace's name, address) of a new pod's network, in which eth0 is up."""
        with self._lock:
            self._num_pods += 1
            number = self._num_pods
        if number > 250:
            raise ClusterError("the /24 of the mini-cluster has no address left")
        space, host_end = f"tandem-{self.slot}-{number}", f"tdm{self.slot}x{number}"
        address = f"10.199.{self.slot}.{number + 1}"
        self._attached[space] = host_end
        command("ip", "netns", "add", space)
        command("ip", "link", "add", host_end, "type", "veth", "peer", "name", "eth0",
                "netns", space)
        command("ip", "link", "set", host_end, "master", self.bridge, "up")
        inside = ("ip", "-n", space)
        command(*inside, "link", "set", "lo", "up")
        command(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        command(*inside, "link", "set", "eth0", "up")
        command(*inside, "route", "add", "default", "via", f"10.199.{self.slot}.1")
        return space, address

    def detach(self, space):
        """Removes a pod's network. REQUIRES: the pod's processes have ended."""
        host_end = self._attached.pop(space, None)
        if host_end is not None:
            command("ip", "link", "del", host_end, check=False)
            command("ip", "netns", "del", space, check=False)

    def close(self):
        for space in list(self._attached):
            self.detach(space)
        command("ip", "link", "del", self.bridge, check=False)

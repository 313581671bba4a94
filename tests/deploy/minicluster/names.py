"""Keeps each pod's hosts file: the pod's own name at once, other pods' names as late as DNS."""

import os
import threading
import time

DOMAIN = "svc.cluster.local"
LOCAL = """127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
"""


def full_name(host, service, namespace):
    return f"{host}.{service}.{namespace}.{DOMAIN}"


class Names:
    """Writes names into the hosts files of running pods. Safe to call from any thread.

    A real pod asks a DNS server, whose answer "no such name" may be remembered for half a minute.
    `delay` imitates this: the name of a pod can be seen that many seconds after its publication.
    """

    def __init__(self, delay=0.5):
        self.delay = delay
        self._lock = threading.Lock()
        self._files = {}    # pod -> (path, the pod's own lines)
        self._records = {}  # pod -> (when it appears, line)
        self._closed = threading.Event()
        self._writer = threading.Thread(target=self._write_when_due, daemon=True)
        self._writer.start()

    def add_file(self, pod, path, address, host, service, namespace):
        """Begins a pod's hosts file. Its first line of a name is the pod's own, as kubelets do."""
        own = f"{address}\t{host}\n"
        if service:
            own = f"{address}\t{full_name(host, service, namespace)}\t{host}\n"
        with self._lock:
            self._files[pod] = (path, own + LOCAL)
            self._write()

    def publish(self, pod, address, host, service, namespace):
        """Lets every pod of the cluster find this one, `delay` seconds from now."""
        short = f"{host}.{service}"
        names = [full_name(host, service, namespace), f"{short}.{namespace}.svc",
                 f"{short}.{namespace}", short]
        with self._lock:
            if pod not in self._records:
                line = f"{address}\t{' '.join(names)}\n"
                self._records[pod] = (time.monotonic() + self.delay, line)

    def withdraw(self, pod):
        """Takes a pod's name away from the others, and its own file out of care."""
        with self._lock:
            self._records.pop(pod, None)
            self._files.pop(pod, None)
            self._write()

    def close(self):
        self._closed.set()
        self._writer.join()

    def _write_when_due(self):
        while not self._closed.wait(0.1):
            with self._lock:
                self._write()

    def _write(self):
        now = time.monotonic()
        seen = "".join(line for due, line in sorted(self._records.values()) if due <= now)
        for path, own in self._files.values():
            text = (own + seen).encode()
            # The file is mounted into pods, so it stays the same file and is changed in place.
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if os.pread(file, 1 << 20, 0) != text:
                    os.pwrite(file, text, 0)
                    os.ftruncate(file, len(text))
            finally:
                os.close(file)

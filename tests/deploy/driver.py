"""The few words in which the suite talks to a cluster, be it real or imitated."""

import time


def conditions(job):
    """Returns {type: condition} of those conditions of a Job that are true."""
    if job is None:
        return {}
    found = job.get("status", {}).get("conditions") or []
    return {c["type"]: c for c in found if c["status"] == "True"}


class Driver:
    """A namespace of a cluster. Objects have the shape of the Kubernetes API.

    Use as a context: its end removes what was made.
    """

    imitation = False  # whether names and pods can be held back

    def __init__(self, namespace):
        self.namespace = namespace

    def apply(self, objects, holds=None):
        """Applies objects. `holds`: host name -> seconds for which that pod stays pending."""
        raise NotImplementedError

    def get(self, kind, name):
        """Returns an object with its status, or None."""
        raise NotImplementedError

    def delete(self, kind, name):
        """Deletes an object, and waits until its pods are gone too."""
        raise NotImplementedError

    def pods(self):
        """Returns all pods that there are."""
        raise NotImplementedError

    def logs(self, pod, container=None):
        """Returns what a container has printed."""
        raise NotImplementedError

    def exec(self, pod, command, container=None):
        """Runs a command in a container. Returns (exit code, output)."""
        raise NotImplementedError

    def kill(self, pod, container=None):
        """Ends a pod without a warning, as the loss of its node does."""
        raise NotImplementedError

    def messages(self):
        """Returns {pod: termination message}, also of pods that are gone by now."""
        raise NotImplementedError

    def wait(self, jobs, condition, timeout):
        """Returns whether all Jobs had the condition within the timeout, in seconds."""
        raise NotImplementedError

    def read_claim(self, claim, path):
        """Returns the bytes of a file in a claim."""
        raise NotImplementedError

    def list_claim(self, claim, path):
        """Returns the names in a folder of a claim; none if there is no such folder."""
        raise NotImplementedError

    def write_claim(self, claim, path, data):
        """Writes a file into a claim that was applied, as a user does who brings data."""
        raise NotImplementedError

    def close(self):
        """Deletes all that was applied, claims included."""
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def pod(self, host):
        """Returns the newest pod of a host name such as trainer-0, or None."""
        found = [p for p in self.pods() if p["metadata"]["name"].startswith(host + "-")]
        return max(found, key=lambda p: p["status"].get("startTime", ""), default=None)

    def termination_message(self, pod):
        return self.messages().get(pod, "")

    def wait_for(self, what, timeout, every=0.2):
        """Calls `what` until its result is true. Returns that, or the last one in time."""
        end = time.monotonic() + timeout
        while True:
            result = what()
            if result or time.monotonic() > end:
                return result
            time.sleep(every)

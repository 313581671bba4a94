"""Gives a scenario its clusters, its folder and its table."""

import contextlib
import os
import re

import manifests
from driver import conditions
from minicluster.leftovers import leftovers

NAMESPACE = "tandem"


class Bench:
    """`kubeconfig` and `image` choose a real cluster; without them this machine imitates one."""

    def __init__(self, table, binary, work, kubeconfig=None, image=None):
        self.table = table
        self.binary = binary
        self.imitation = kubeconfig is None
        self._before = set(leftovers()) if self.imitation else None
        self._work = work
        self._kubeconfig, self._image = kubeconfig, image

    def folder(self, name):
        path = os.path.join(self._work, name)
        os.makedirs(path)
        return path

    def path(self, name):
        """Returns a path in the folder of the suite at which nothing is."""
        return os.path.join(self._work, name)

    @contextlib.contextmanager
    def cluster(self, dns_delay=0.5):
        """A driver with nothing in its namespace."""
        if not self.imitation:
            from kubectl_driver import KubectlDriver
            with KubectlDriver(self._kubeconfig, self._image, NAMESPACE) as driver:
                yield driver
            return
        from minicluster.driver import MiniDriver
        with MiniDriver(self.binary, NAMESPACE, dns_delay) as driver:
            yield driver

    def nothing_is_left(self, name):
        """Adds a row: of the mini-clusters no container, network, mount, cgroup or file is left."""
        left = [line for line in leftovers() if line not in self._before]
        self.table.row(f"{name}: left on this machine", "nothing", ", ".join(left) or "nothing",
                       not left)

    def completes(self, driver, what, timeout):
        """Adds a row: all Jobs complete. Returns whether they did; else prints what pods said."""
        done = driver.wait(manifests.ROLES, "Complete", timeout)
        self.table.equal(f"{what}: Jobs", all_of("Complete"), states(driver))
        if not done:
            explain(driver)
        return done

    def fails(self, driver, what, timeout):
        """Adds a row: all Jobs fail within the timeout, in seconds."""
        driver.wait(manifests.ROLES, "Failed", timeout)
        self.table.equal(f"{what}: Jobs after at most {timeout} s", all_of("Failed"),
                         states(driver))

    def nothing_runs(self, driver, what):
        running = [pod["metadata"]["name"] for pod in driver.pods()
                   if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        self.table.equal(f"{what}: pods that run afterwards", "none",
                         ", ".join(running) or "none")

    def apply_again(self, driver, objects):
        """Deletes the Jobs, keeps the claims, and applies the objects as README.md says."""
        for role in manifests.ROLES:
            driver.delete("Job", role)
        driver.apply(objects)


def all_of(condition):
    return " ".join(f"{role} {condition}" for role in manifests.ROLES)


def states(driver):
    """Returns a word for each Job: its final condition, or that it still runs."""
    found = []
    for role in manifests.ROLES:
        seen = conditions(driver.get("Job", role))
        found.append(f"{role} " + next((c for c in ("Complete", "Failed") if c in seen), "active"))
    return " ".join(found)


def log_of(driver, host):
    """Returns the log of the newest pod of a host name; "" without one."""
    pod = driver.pod(host)
    return driver.logs(pod["metadata"]["name"]) if pod else ""


def exit_code(pod):
    """Returns the exit code of a pod's container, or None while it runs."""
    for status in pod["status"].get("containerStatuses", []):
        return status["state"].get("terminated", {}).get("exitCode")
    return None


def message_of(driver, host):
    """Returns the termination message of a host name's pod, also if the pod is gone."""
    found = [text for pod, text in driver.messages().items() if pod.startswith(host + "-")]
    return " ".join(found[-1].split()) if found else "no message"


def line_with(pattern, text):
    """Returns the first line that has the pattern, or "no such line"."""
    return next((line.strip() for line in text.splitlines() if re.search(pattern, line)),
                "no such line")


def explain(driver):
    """Prints the state and the end of the log of every pod, for whoever looks for the cause."""
    for pod in driver.pods():
        name = pod["metadata"]["name"]
        print(f"--- {name}: {pod['status']['phase']} {pod['status'].get('message', '')}")
        try:
            print(driver.logs(name)[-1500:])
        except Exception as error:  # the pod may have begun no container
            print(error)
    for pod, text in driver.messages().items():
        print(f"--- message of {pod}: {text}")

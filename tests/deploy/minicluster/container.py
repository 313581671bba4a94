"""Runs one container by runc, and tells its state as the Kubernetes API would."""

import json
import os
import shutil
import subprocess
import time

from .machine import CGROUPS, command

MAX_MESSAGE = 4096   # bytes that Kubernetes keeps of a termination message
MAX_FROM_LOG = 2048  # bytes of the log that stand in for an absent message


class Container:
    """A container of a pod. `folder` holds its root, config, log and message."""

    def __init__(self, manifest, name, folder, runc_root, cgroup):
        self.manifest = manifest
        self.log = os.path.join(folder, "log")
        self.message_file = os.path.join(folder, "termination-log")
        self.cgroup = cgroup
        self.state = {"waiting": {"reason": "ContainerCreating"}}
        self.ready = False
        self._name = name
        self._folder = folder
        self._runc = ("runc", "--root", runc_root)
        self._process = None
        os.makedirs(folder)
        open(self.log, "w").close()
        # Any user may write the message: the container's uid is not root's.
        open(self.message_file, "w").close()
        os.chmod(self.message_file, 0o666)

    @property
    def ended(self):
        return "terminated" in self.state

    @property
    def exit_code(self):
        return self.state.get("terminated", {}).get("exitCode")

    def start(self, config):
        """Starts runc with a config.json. Returns at once; call `poll` until `ended`."""
        with open(os.path.join(self._folder, "config.json"), "w") as file:
            json.dump(config, file)
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [*self._runc, "--log", os.path.join(self._folder, "runc.log"), "run", "--keep",
                 "--bundle", self._folder, "--pid-file", os.path.join(self._folder, "pid"),
                 self._name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.state = {"running": {"startedAt": now()}}

    def fail(self, reason, why):
        """Ends a container that could not be started."""
        self.state = {"terminated": {"exitCode": 128, "reason": reason, "message": why,
                                     "finishedAt": now()}}

    def poll(self):
        """Looks whether the process has ended, and if so keeps its exit code and message."""
        if self._process is None or self.ended or self._process.poll() is None:
            return
        code = self._process.returncode
        if not os.path.exists(os.path.join(self._folder, "pid")):
            self.fail("StartError", self.read_log()[-MAX_FROM_LOG:])
        else:
            reason = "Completed" if code == 0 else "Error"
            reason = "OOMKilled" if self._ran_out_of_memory() else reason
            self.state = {"terminated": {
                "exitCode": code, "reason": reason, "message": self._message(code),
                "startedAt": self.state["running"]["startedAt"], "finishedAt": now()}}
        self.ready = False
        self.remove()

    def signal(self, name):
        """Sends a signal to the container's first process. Does nothing if it has ended."""
        command(*self._runc, "kill", self._name, name, check=False)

    def execute(self, words):
        """Runs a command in the container. Returns (exit code, its output)."""
        done = subprocess.run([*self._runc, "exec", self._name, *words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.decode(errors="replace")

    def read_log(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def remove(self):
        """Kills what is left of the container, and forgets its root. The log stays."""
        command(*self._runc, "delete", "--force", self._name, check=False)
        if self._process is not None:
            self._process.wait()
        shutil.rmtree(os.path.join(self._folder, "root"), ignore_errors=True)

    def _message(self, code):
        with open(self.message_file, "rb") as file:
            text = file.read(MAX_MESSAGE).decode(errors="replace")
        policy = self.manifest.get("terminationMessagePolicy", "File")
        if not text and code != 0 and policy == "FallbackToLogsOnError":
            text = self.read_log()[-MAX_FROM_LOG:]
        return text

    def _ran_out_of_memory(self):
        for path in (f"{CGROUPS}/memory{self.cgroup}/memory.oom_control",
                     f"{CGROUPS}{self.cgroup}/memory.events"):
            if os.path.exists(path):
                with open(path) as file:
                    counts = dict(line.split() for line in file)
                return counts.get("oom_kill", "0") != "0"
        return False


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

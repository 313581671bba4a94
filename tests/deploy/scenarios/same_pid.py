"""Shows that a restarted process with the same host name, pid and address is refused as new.

Needs no cluster: each role runs in namespaces of its own for pids and host names. So it has pid 1,
as in a container. All are on loopback addresses.
"""

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time

import manifests

RESTARTED = ("ps-1", "trainer-1", "trainer-0", "master-0")
HOSTS = ("master-0", "ps-0", "ps-1", "trainer-0", "trainer-1")
WITHIN = 60  # seconds from the restart to the end of every process
NAMED = r"restarted|another process|another one"
ISOLATE = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
           "sh", "-c", 'hostname "$0" && exec "$@"']


def missing():
    """Returns why this machine cannot run the scenario, or None."""
    if shutil.which("unshare") is None:
        return "unshare is not installed (Debian package util-linux)"
    done = subprocess.run([*ISOLATE, "probe", "true"], capture_output=True, text=True)
    return f"no new namespaces: {done.stderr.strip()}" if done.returncode != 0 else None


def run(bench):
    folder = bench.folder("job")
    objects = manifests.overlay("local")
    job, data = os.path.join(folder, "job.textproto"), os.path.join(folder, "data.txt")
    with open(job, "w") as file:
        file.write(manifests.job_file(objects))
    subprocess.run([bench.binary, "synthesize", f"--out={data}", "--users=2000", "--items=200"],
                   check=True, stdout=subprocess.DEVNULL)
    secret = os.path.join(folder, "secret")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(secrets.token_hex(16))
    for host in RESTARTED:
        roles = Roles(bench.binary, job, data, secret, os.path.join(folder, host))
        try:
            _restart(bench.table, roles, host)
        finally:
            roles.kill()
    for host in ("trainer-0", "ps-0", "master-0"):
        roles = Roles(bench.binary, job, data, secret, os.path.join(folder, f"stopped-{host}"))
        try:
            _stop_waiting(bench.table, roles, host)
        finally:
            roles.kill()


def _stop_waiting(table, roles, host):
    """The kernel keeps signals without a handler from pid 1, so a role must end itself."""
    roles.start(host)
    roles.wait_for_name(host)
    time.sleep(3)
    roles.signal(host, signal.SIGTERM)
    ended = roles.wait_for_end(5, [host])
    table.row(f"{host} waits as pid 1 and gets SIGTERM", "143 within 5 s",
              roles.codes().get(host) if ended else "runs on",
              roles.codes().get(host) == 128 + signal.SIGTERM)


def _restart(table, roles, host):
    for name in HOSTS:
        roles.start(name)
    if not roles.wait_for_steps(60):
        table.row(f"{host}: training before the restart", "steps", roles.words("trainer-0"), False)
        return
    old = roles.kill_one(host)
    began = time.monotonic()
    roles.start(host)
    new = roles.wait_for_name(host)
    ended = roles.wait_for_end(WITHIN)
    seconds = time.monotonic() - began
    table.equal(f"{host} restarted: its host name and pid, as before", old, new)
    table.row(f"{host} restarted: all ended", f"within {WITHIN} s",
              f"{seconds:.0f} s" if ended else "some run on", ended)
    for name in HOSTS:
        table.equal(f"{host} restarted: exit code of {name}", 75, roles.codes().get(name))
    words = roles.words(host)
    # Members refuse a new master. It can only wait for them, and says so.
    told, wanted = ((r"only 0 of 2", "waits in vain") if host == "master-0" else
                    (NAMED, "is told that it is another one"))
    table.row(f"{host} restarted: the new process", wanted, words[-140:],
              re.search(told, words) is not None)
    name = r"master\b.*restarted" if host == "master-0" else rf"\b{host}\b"
    named = [other for other in HOSTS if other != host and re.search(name, roles.words(other))]
    table.row(f"{host} restarted: named by", "trainer-0, or the others if it is that",
              ", ".join(named) or roles.words("trainer-0")[-140:],
              bool(named) and (host == "trainer-0" or "trainer-0" in named))


class Roles:
    """The processes of one job. Each keeps its command line and its port when it is restarted."""

    def __init__(self, binary, job, data, secret, folder):
        os.makedirs(folder)
        self._folder = folder
        self._running = {}  # host -> Popen of the newest process
        ports = dict(zip(HOSTS, _free_ports(len(HOSTS))))
        same = [job, "--ps=2", "--trainers=2", f"--out={folder}/run", f"--secret-file={secret}",
                "--join-timeout=30", "--resume=auto", f"--set=data.path={data}",
                "--set=train.max_epochs=1000000", "--set=train.eval_every_epochs=1000000"]
        self._commands = {}
        for host, port in ports.items():
            role, index = host.split("-")
            master = [] if role == "master" else [f"--master=127.0.0.1:{ports['master-0']}",
                                                   f"--index={index}"]
            self._commands[host] = [binary, role, *same, *master, f"--listen=127.0.0.1:{port}"]

    def start(self, host):
        """Starts a role as pid 1. Its words of an earlier life are kept apart."""
        log = self._log(host)
        if os.path.exists(log):
            os.rename(log, log + ".before")
        with open(log, "w") as file:
            self._running[host] = subprocess.Popen(
                [*ISOLATE, host, *self._commands[host]], stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True)

    def wait_for_steps(self, timeout):
        metrics = os.path.join(self._folder, "run", "metrics.jsonl")
        end = time.monotonic() + timeout
        while time.monotonic() < end and not self.codes():
            if os.path.exists(metrics) and os.path.getsize(metrics) > 2000:
                return True
            time.sleep(0.1)
        return False

    def kill_one(self, host):
        """Kills a role as the kernel would, waits for its end, and returns who it was."""
        was = self.who(host)
        self.signal(host, signal.SIGKILL)
        self._running[host].wait()
        return was

    def signal(self, host, number):
        os.kill(self._inner(host), number)

    def who(self, host):
        """Returns (host name, pid in its own namespace) of a role's newest process."""
        inner = self._inner(host)
        try:
            with open(f"/proc/{inner}/status") as file:
                pid = next(line.split()[-1] for line in file if line.startswith("NSpid"))
        except OSError:
            return None
        done = subprocess.run(["nsenter", "--target", str(inner), "--uts", "hostname"],
                              capture_output=True, text=True)
        return done.stdout.strip(), int(pid)

    def wait_for_name(self, host):
        """Returns who a process is that has just been started, once it has its own host name."""
        for _ in range(100):
            found = self.who(host)
            if found is not None and found[0] == host:
                return found
            time.sleep(0.01)
        return None

    def wait_for_end(self, timeout, hosts=HOSTS):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if set(hosts) <= set(self.codes()):
                return True
            time.sleep(0.1)
        return False

    def codes(self):
        """Returns the exit codes of the processes that have ended."""
        return {host: process.returncode for host, process in self._running.items()
                if process.poll() is not None}

    def words(self, host):
        with open(self._log(host)) as file:
            return " ".join(file.read()[-3000:].split())

    def kill(self):
        for process in self._running.values():
            process.kill()  # --kill-child ends the role with it
            process.wait()

    def _log(self, host):
        return os.path.join(self._folder, f"{host}.log")

    def _inner(self, host):
        """Returns the pid, seen from here, of the process that has pid 1; None if it has ended."""
        pid = self._running[host].pid
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                children = file.read().split()
        except OSError:
            return None
        return int(children[0]) if children else None


def _free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports

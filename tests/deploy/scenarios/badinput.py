"""Shows that wrong input ends with one clear line and its exit code, and changes nothing."""

import copy
import os
import re
import subprocess
import sys

import manifests
import render
from bench import all_of, exit_code, message_of, states

TRAINER = ["trainer", "--master=127.0.0.1:1", "--join-timeout=2", "--trainers=2"]
OLD_KUBECTL = """#!/bin/sh
echo '{"clientVersion": {"major": "1", "minor": "20", "gitVersion": "v1.20.0"}}'
"""


def run(bench):
    objects = manifests.with_args(manifests.overlay("local"), "--set=train.max_epochs=1")
    _ranks(bench, objects)
    _old_kubectl(bench)
    for case in (_no_master, _bad_job, _two_secrets, _own_folders):
        with bench.cluster() as driver:
            case(bench.table, driver, objects)


def _ranks(bench, objects):
    """Two sources of a rank that disagree are both named."""
    job = os.path.join(bench.folder("ranks"), "job.textproto")
    with open(job, "w") as file:
        file.write(manifests.job_file(objects))
    for args, env in ((["--index=1"], {"JOB_COMPLETION_INDEX": "0"}),
                      ([], {"RANK": "3", "WORLD_SIZE": "2"}),
                      ([], {"JOB_COMPLETION_INDEX": "0", "RANK": "1", "WORLD_SIZE": "2"})):
        done = subprocess.run(
            [bench.binary, *TRAINER, job, "--set=data.path=/dev/null", *args], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=os.path.dirname(job))
        sources = ["--index" if args else None, *(name for name in env)]
        if "JOB_COMPLETION_INDEX" in env and "RANK" in env:
            sources.remove("WORLD_SIZE")
        named = all(source in done.stdout for source in sources if source)
        what = " ".join(args + [f"{name}={value}" for name, value in env.items()])
        bench.table.row(what, "2, names both", f"{done.returncode}, {_short(done.stdout)}",
                        done.returncode == 2 and named)


def _old_kubectl(bench):
    """A kubectl that renders no components is named, and nothing is run."""
    script = os.path.join(bench.folder("old"), "kubectl")
    with open(script, "w") as file:
        file.write(OLD_KUBECTL)
    os.chmod(script, 0o755)
    done = subprocess.run(
        [sys.executable, str(render.ROOT / "tests/deploy/suite.py"), "cluster"], text=True,
        env={**os.environ, "TANDEM_KUBECTL": script, "TANDEM": bench.binary},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    skipped = "SKIPPED" in done.stdout and "1.27 or later is needed" in done.stdout
    bench.table.row("kubectl 1.20", "0, skipped: 1.27 is needed",
                    f"{done.returncode}, {_short(done.stdout)}", done.returncode == 0 and skipped)


def _no_master(table, driver, objects):
    """Nobody has the name that --master says."""
    objects = manifests.without_arg(objects, "--join-timeout=")
    objects = manifests.with_args(objects, "--join-timeout=15")
    driver.apply([item for item in objects
                  if not (item["kind"] == "Job" and item["metadata"]["name"] == "master")])
    driver.wait(("ps", "trainer"), "Failed", 90)
    table.equal("no master: Jobs", "master active ps Failed trainer Failed", states(driver))
    for host in ("ps-0", "trainer-0"):
        message = message_of(driver, host)
        named = "master-0.master" in message and re.search(r"1[4-9]", message) is not None
        table.row(f"no master: {host}", "75, names it, how long", f"{_code(driver, host)}, "
                  f"{_short(message)}", named and _code(driver, host) in (75, "gone"))


def _bad_job(table, driver, objects):
    """A field that no job has."""
    objects = copy.deepcopy(objects)
    data = manifests.job_file_map(objects)["data"]
    data["job.textproto"] = data["job.textproto"].replace("batch_size", "batch_sise")
    driver.apply(objects)
    driver.wait(manifests.ROLES, "Failed", 60)
    table.equal("bad job file: Jobs", all_of("Failed"), states(driver))
    for role in manifests.ROLES:
        job = driver.get("Job", role)
        failed, most = job["status"].get("failed", 0), job["spec"]["completions"]
        table.row(f"bad job file: failed pods of {role}", f"1 to {most}", failed,
                  1 <= failed <= most)
        messages = [text for pod, text in driver.messages().items() if pod.startswith(role + "-")]
        message = " ".join(messages[0].split()) if messages else "no message"
        table.row(f"bad job file: a message of {role}", "names the field", message[:140],
                  "batch_sise" in message)


def _two_secrets(table, driver, objects):
    """The trainers have another secret than the master and the servers."""
    objects = manifests.without_arg(objects, "--join-timeout=")
    objects = manifests.with_args(objects, "--join-timeout=20")
    other = copy.deepcopy(next(item for item in objects if item["kind"] == "Secret"))
    other["metadata"]["name"] = "other"
    other["data"] = {"secret": "YS13b3JkLXRoYXQtdGhlLW90aGVycy1kby1ub3QtaGF2ZQ=="}
    for volume in manifests.volumes(objects, "trainer"):
        if "secret" in volume:
            volume["secret"]["secretName"] = "other"
    driver.apply(objects + [other])
    driver.wait(manifests.ROLES, "Failed", 120)
    table.equal("two secrets: Jobs", all_of("Failed"), states(driver))
    message = message_of(driver, "trainer-0")
    if message == "no message":
        message = message_of(driver, "trainer-1")
    table.row("two secrets: a trainer", "names the secret", _short(message), "secret" in message)
    table.row("two secrets: steps trained", "none", _metrics(driver), _metrics(driver) == "none")


def _own_folders(table, driver, objects):
    """Each server has a volume of its own for --out."""
    objects = copy.deepcopy(objects)
    for volume in manifests.volumes(objects, "ps"):
        if volume["name"] == "run":
            del volume["persistentVolumeClaim"]
            volume["emptyDir"] = {}
    driver.apply(objects)
    driver.wait(manifests.ROLES, "Failed", 120)
    table.equal("--out not shared: Jobs", all_of("Failed"), states(driver))
    message = message_of(driver, "trainer-0")
    table.row("--out not shared: trainer-0", "2, ps-N does not see FILE that trainer-0 wrote",
              f"{_code(driver, 'trainer-0')}, {_short(message)}",
              re.search(r"ps-\d does not see .+ that trainer-0 wrote", message) is not None
              and _code(driver, "trainer-0") in (2, "gone"))
    table.row("--out not shared: steps trained", "none", _metrics(driver),
              _metrics(driver) == "none")


def _metrics(driver):
    """Returns "none" if rank 0 has logged no step."""
    if "metrics.jsonl" not in driver.list_claim("run", "run"):
        return "none"
    return "some" if driver.read_claim("run", "run/metrics.jsonl").strip() else "none"


def _code(driver, host):
    """Returns the exit code of a host name's pod. A failed Job may have removed the pod."""
    pod = driver.pod(host)
    return "gone" if pod is None else exit_code(pod)


def _short(text):
    return " ".join(text.split())[:160]

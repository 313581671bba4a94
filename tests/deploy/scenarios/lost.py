"""Shows that a lost pod ends the job with its reason, and that the run goes on if applied again."""

import json
import re
import time

import manifests
from bench import explain, line_with, log_of, message_of
from host_run import HostRun

LOST = ("ps-1", "trainer-1", "trainer-0", "master-0")
SHORT = ("--set=train.max_epochs=8", "--set=checkpoint.every_steps=100")


def run(bench):
    objects = manifests.with_args(manifests.overlay("local"), *SHORT)
    unbroken = HostRun(bench.binary, objects, bench.path("launch-unbroken"))
    for host in LOST:
        with bench.cluster() as driver:
            _lose(bench, driver, host, objects, unbroken.summary["params_hash"])


def _lose(bench, driver, host, objects, wanted_hash):
    table = bench.table
    driver.apply(objects)
    kept = driver.wait_for(lambda: _steps_kept(driver), 120)
    if not kept or "active" not in _state(driver, host):
        table.row(f"{host}: a checkpoint in mid-training", "one", "none", False)
        explain(driver)
        return
    driver.kill(driver.pod(host)["metadata"]["name"])
    began = time.monotonic()
    bench.fails(driver, f"{host} killed", 60)
    seconds = time.monotonic() - began
    # The pod that was killed says nothing. Rank 0 names it, or trainer-1 if rank 0 is the lost one.
    teller = "trainer-1" if host == "trainer-0" else "trainer-0"
    message = driver.wait_for(lambda: _said(driver, teller), 10) or "no message"
    table.row(f"{host} killed: message of {teller} after {seconds:.0f} s", f"names {host}",
              message[:160], re.search(rf"\b{host}\b", message) is not None)
    bench.nothing_runs(driver, f"{host} killed")
    bench.apply_again(driver, objects)
    if bench.completes(driver, f"{host} killed, applied again", 180):
        line = line_with("resumed after step", log_of(driver, "trainer-0"))
        step = int((re.search(r"resumed after step (\d+)", line) or [0, 0])[1])
        table.row(f"{host} killed, applied again: goes on", f"after step {min(kept)} or later",
                  line[:80], step >= min(kept))
        summary = json.loads(driver.read_claim("run", "run/summary.json"))
        table.equal(f"{host} killed, applied again: params_hash", wanted_hash,
                    summary["params_hash"])


def _steps_kept(driver):
    """Returns the steps of whole checkpoints in the claim."""
    folders = driver.list_claim("run", "run/checkpoints")
    return [int(folder.split("-")[1]) for folder in folders if re.fullmatch(r"step-\d+", folder)
            and "manifest.textproto" in driver.list_claim("run", f"run/checkpoints/{folder}")]


def _state(driver, host):
    pod = driver.pod(host)
    return "active" if pod and pod["status"]["phase"] == "Running" else "ended"


def _said(driver, host):
    message = message_of(driver, host)
    return None if message == "no message" else message

"""Shows that names, servers and pods that come late cost time and nothing else."""

import time

import manifests
from bench import line_with, log_of

SHORT = "--set=train.max_epochs=2"
DNS_SECONDS = 40
SERVERS_SECONDS = 60
PENDING_SECONDS = 90


def run(bench):
    objects = manifests.with_args(manifests.overlay("local"), SHORT)
    _late_servers(bench, objects)
    if bench.imitation:
        _late_names(bench, objects)
        _late_trainer(bench, objects)
    else:
        why = "a real cluster holds back neither names nor one pod of a Job"
        bench.table.row("names 40 s late, a trainer 90 s pending", "complete", why, "skipped")


def _late_names(bench, objects):
    with bench.cluster(dns_delay=DNS_SECONDS) as driver:
        began = time.monotonic()
        driver.apply(objects)
        bench.completes(driver, f"names {DNS_SECONDS} s late", 240)
        _waited(bench, driver, began, f"names {DNS_SECONDS} s late", DNS_SECONDS,
                ("ps-0", "trainer-0"), "master-0")


def _late_servers(bench, objects):
    late = [item for item in objects
            if item["kind"] == "Job" and item["metadata"]["name"] in ("master", "ps")]
    with bench.cluster() as driver:
        began = time.monotonic()
        driver.apply([item for item in objects if item not in late])
        time.sleep(SERVERS_SECONDS)
        driver.apply(late)
        what = f"trainers {SERVERS_SECONDS} s before servers"
        bench.completes(driver, what, 240)
        _waited(bench, driver, began, what, SERVERS_SECONDS, ("trainer-0",), "master-0")


def _late_trainer(bench, objects):
    with bench.cluster() as driver:
        began = time.monotonic()
        driver.apply(objects, holds={"trainer-1": PENDING_SECONDS})
        what = f"trainer-1 pending for {PENDING_SECONDS} s"
        bench.completes(driver, what, 240)
        _waited(bench, driver, began, what, PENDING_SECONDS, ("master-0", "trainer-0"),
                "trainer-1")


def _waited(bench, driver, began, what, seconds, hosts, missing):
    """Adds rows: the run took as long as the wait, and each host says for whom it waits."""
    took = time.monotonic() - began
    bench.table.row(f"{what}: seconds from first to last", f">= {seconds}", f"{took:.0f}",
                    took >= seconds)
    for host in hosts:
        line = line_with(f"waiting for.*{missing}", log_of(driver, host))
        bench.table.row(f"{what}: {host} says for whom it waits", f"names {missing}", line[:120],
                        missing in line)

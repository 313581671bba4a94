"""Shows that an applied overlay trains, ends, and does not train twice."""

import json

import manifests
from bench import line_with, log_of
from host_run import HostRun, figures, losses

EXAMPLE_STEPS = 40
LOSSES_MAY_DIFFER = 1e-5
RIGHTS = "id -u; if touch /written 2>/dev/null; then echo written; else echo read-only; fi"


def run(bench):
    _local(bench)
    _example(bench)


def _local(bench):
    table, objects = bench.table, manifests.overlay("local")
    wanted = HostRun(bench.binary, objects, bench.path("launch-local"))
    with bench.cluster() as driver:
        driver.apply(objects)
        _ready(bench, driver, objects)
        if not bench.completes(driver, "local", 240):
            return
        bench.nothing_runs(driver, "local")
        shown = figures(log_of(driver, "trainer-0"))
        table.row("local: the quickstart's figures in the log of trainer-0",
                  figures(wanted.log), shown, shown != "" and shown == figures(wanted.log))
        summary = json.loads(driver.read_claim("run", "run/summary.json"))
        table.equal("local: params_hash in summary.json of the claim, as launch's",
                    wanted.summary["params_hash"], summary["params_hash"])
        _again(bench, driver, objects, "local")


def _ready(bench, driver, objects):
    """Adds rows: every pod becomes ready, and runs without rights."""
    wanted = sum(manifests.job(objects, role)["spec"]["completions"] for role in manifests.ROLES)
    most = 0

    def all_ready():
        nonlocal most
        statuses = [pod["status"].get("containerStatuses", []) for pod in driver.pods()]
        most = max(most, sum(bool(s) and all(c["ready"] for c in s) for s in statuses))
        return most == wanted

    driver.wait_for(all_ready, 90)
    bench.table.equal("local: pods that were ready at one time", wanted, most)
    pod = driver.pod("trainer-0")
    if pod is not None:
        _, words = driver.exec(pod["metadata"]["name"], ["sh", "-c", RIGHTS])
        bench.table.equal("local: user of trainer-0, its root", "65532 read-only",
                          " ".join(words.split()))


def _example(bench):
    table = bench.table
    objects = manifests.with_args(manifests.for_one_node(manifests.overlay("example")),
                                  f"--set=train.max_steps={EXAMPLE_STEPS}",
                                  f"--set=checkpoint.every_steps={EXAMPLE_STEPS // 2}",
                                  "--set=train.log_every_steps=1")
    data = text()
    wanted = HostRun(bench.binary, objects, bench.path("launch-example"), data)
    with bench.cluster() as driver:
        driver.apply([item for item in objects if item["kind"] != "Job"])
        driver.write_claim("data", "text.txt", data)
        driver.apply(objects)
        if not bench.completes(driver, "example, dp 2 x tp 2", 240):
            return
        bench.nothing_runs(driver, "example")
        found = losses(driver.read_claim("run", "run/metrics.jsonl"))
        apart = max((abs(found.get(step, 1e9) - loss) for step, loss in wanted.losses.items()),
                    default=1e9)
        table.row(f"example: losses of {len(found)} logged steps from launch's",
                  f"<= {LOSSES_MAY_DIFFER:g}", f"{apart:.2g}", apart <= LOSSES_MAY_DIFFER)
        _again(bench, driver, objects, "example")


def _again(bench, driver, objects, name):
    """Applies a run that is complete once more."""
    before = driver.read_claim("run", "run/metrics.jsonl")
    bench.apply_again(driver, objects)
    if not bench.completes(driver, f"{name}, applied again", 120):
        return
    log = log_of(driver, "trainer-0")
    line = line_with("already complete", log)
    bench.table.row(f"{name}, applied again: the log of trainer-0", "already complete", line,
                    "already complete" in line)
    same = driver.read_claim("run", "run/metrics.jsonl") == before
    trained = line_with(r"^step \d+/", log)
    bench.table.row(f"{name}, applied again: steps trained", "none",
                    "none" if same and trained == "no such line" else trained,
                    same and trained == "no such line")


def text():
    """Returns a text of 300 kB for a language model: sentences of few words, equal everywhere."""
    names = "the a one red small old tree house river road cat bird sees finds likes leaves".split()
    state, words = 1, []
    for _ in range(60000):
        state = (state * 1103515245 + 12345) % 2**31
        words.append(names[(state >> 16) % len(names)])
    lines = [" ".join(words[at:at + 10]) + "." for at in range(0, len(words), 10)]
    return ("\n".join(lines) + "\n").encode()

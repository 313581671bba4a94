"""Rules for Jobs: how they end, and that all places agree on the counts."""

import re

import render
from overlays import ROLES, flag, main_container, named, selects

NEVER_RETRIED = [2, 3, 4, 70]  # configuration, data, checkpoint, diverged
CHECKPOINT_SECONDS = 600  # the default of checkpoint.timeout_seconds
POD_SUFFIX = len("-abcde")  # what the Job controller appends to a pod's name


def all_roles_are_there(overlay):
    for name in ROLES:
        if [role.name for role in overlay.roles()].count(name) != 1:
            yield f"Job {name}: is not there once"


def restart_is_never(overlay):
    """podFailurePolicy requires it. A restarted role would be refused."""
    for role in overlay.roles():
        if role.pod.get("restartPolicy") != "Never":
            yield f"{role.where}: restartPolicy is not Never"


def nothing_is_tried_again(overlay):
    """A replaced pod would be refused: it is not the process that the others know."""
    for role in overlay.roles():
        if role.job.get("backoffLimit") != 0 or "backoffLimitPerIndex" in role.job:
            yield f"{role.where}: backoffLimit is not 0"
        for entry in role.job.get("podFailurePolicy", {}).get("rules", []):
            if entry["action"] != "FailJob":
                yield f"{role.where}: podFailurePolicy.action is {entry['action']}, not FailJob"
    for item in overlay.of("JobSet"):
        if item["spec"].get("failurePolicy", {}).get("maxRestarts") != 0:
            yield f"{named(item)}: failurePolicy.maxRestarts is not 0"


def exit_codes_fail_the_job(overlay):
    for role in overlay.roles():
        named = []
        for entry in role.job.get("podFailurePolicy", {}).get("rules", []):
            codes = entry.get("onExitCodes", {})
            if codes.get("operator") == "In" and "containerName" not in codes:
                named += codes["values"]
        for code in NEVER_RETRIED:
            if code not in named:
                yield f"{role.where}: podFailurePolicy does not name exit code {code}"


def one_pod_has_a_rank(overlay):
    for role in overlay.roles():
        if role.job.get("podReplacementPolicy") != "Failed":
            yield f"{role.where}: podReplacementPolicy is not Failed"


def ranks_are_indexes(overlay):
    for role in overlay.roles():
        if role.job.get("completionMode") != "Indexed":
            yield f"{role.where}: completionMode is not Indexed"


def all_ranks_must_succeed(overlay):
    for role in overlay.roles():
        if "successPolicy" in role.job:
            yield f"{role.where}: successPolicy lets a job succeed before all its ranks"


def all_ranks_run_at_once(overlay):
    for role in overlay.roles():
        if role.job.get("parallelism") != role.job.get("completions"):
            yield f"{role.where}: parallelism is not completions"


def jobs_have_an_end(overlay):
    for role in overlay.roles():
        if not role.job.get("activeDeadlineSeconds"):
            yield f"{role.where}: activeDeadlineSeconds is missing"


def jobs_are_cleaned_up(overlay):
    """A finished job of a JobSet must stay: its JobSet would create it again."""
    whole = overlay.of("Job") + overlay.of("JobSet")
    for item in whole:
        if "ttlSecondsAfterFinished" not in item["spec"]:
            yield f"{named(item)}: ttlSecondsAfterFinished is missing"
    for role in overlay.roles() if overlay.of("JobSet") else []:
        if "ttlSecondsAfterFinished" in role.job:
            yield f"{role.where}: ttlSecondsAfterFinished belongs to the JobSet"


def grace_fits_a_checkpoint(overlay):
    match = re.search(r"\btimeout_seconds:\s*([\d.]+)", _message(overlay.job_file(), "checkpoint"))
    budget = float(match[1]) if match else CHECKPOINT_SECONDS
    for role in overlay.roles():
        if role.pod.get("terminationGracePeriodSeconds", 30) < budget:
            yield f"{role.where}: terminationGracePeriodSeconds is below {budget:.0f}"


def _message(text, name):
    """The fields of a message in text format that has no messages in it."""
    match = re.search(r"^%s\s*\{([^}]*)\}" % name, text, re.MULTILINE)
    return match[1] if match else ""


def evictions_are_refused(overlay):
    """For pods of a Job only an integer minAvailable works."""
    for role in overlay.roles():
        budgets = [item["spec"] for item in overlay.of("PodDisruptionBudget")
                   if selects(item["spec"]["selector"], role.labels)]
        if len(budgets) != 1:
            yield f"{role.where}: {len(budgets)} PodDisruptionBudgets select it"
        for spec in budgets:
            available = spec.get("minAvailable")
            if type(available) is not int or available != role.job["completions"]:
                yield f"PodDisruptionBudget of {role.where}: minAvailable is not completions"


def counts_are_told(overlay):
    """Each role is told how many pods of each role there are."""
    counts = {role.name: role.job.get("completions") for role in overlay.roles()}
    if counts["master"] != 1:
        yield f"{overlay.role('master').where}: completions is not 1"
    for role in overlay.roles():
        for name, job in (("ps", "ps"), ("trainers", "trainer")):
            if flag(role, name) != str(counts[job]):
                yield f"{role.where}: args: --{name} is not the completions of {job}"


def layout_multiplies(overlay):
    for role in overlay.roles():
        parts = [int(flag(role, name) or 0) for name in ("dp", "tp", "pp")]
        if parts[0] * parts[1] * parts[2] != int(flag(role, "trainers") or 0):
            yield f"{role.where}: args: --trainers is not --dp x --tp x --pp"


def roles_are_told_alike(overlay):
    """Arguments agree, but for addresses and the role itself."""
    own = re.compile(r"--(master|listen|health|advertise)=")
    told = {role.where: [argument for argument in main_container(role)["args"][1:]
                         if not own.match(argument)] for role in overlay.roles()}
    first = next(iter(told.values()))
    for where, arguments in told.items():
        if arguments != first:
            only = sorted(set(arguments) ^ set(first))
            yield f"{where}: args differ from the first role's: {only}"


def runs_resume(overlay):
    for role in overlay.roles():
        if flag(role, "resume") != "auto":
            yield f"{role.where}: args: --resume is not auto"


def names_are_short_enough(overlay):
    """Names of pods are host names and labels: 63 characters with what the controller appends."""
    for role in overlay.roles():
        longest = f"{role.host}-{role.job['completions'] - 1}"
        if len(longest) + POD_SUFFIX > 63:
            yield f"{role.where}: metadata.name: {longest} is too long for a host name"
    for item in overlay.objects:
        if len(item["metadata"]["name"]) > 63:
            yield f"{named(item)}: metadata.name is longer than 63"


def local_is_the_quickstart(overlay):
    """The figures that users compare are the quickstart's."""
    wanted = (render.ROOT / "examples" / "sequence_rec" / "synthetic.textproto").read_text()
    if overlay.name == "local" and overlay.job_file() != wanted:
        yield "ConfigMap job: job.textproto is not examples/sequence_rec/synthetic.textproto"

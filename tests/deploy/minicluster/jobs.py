"""Runs Indexed Jobs: makes a pod for each index, and judges how they end."""

import copy
import secrets
import string
import time

from .container import now
from .pod import Pod

FIRST_DELAY = 10  # seconds before a failed index is tried again; doubles with each failure
LETTERS = string.ascii_lowercase + string.digits


class Job:
    """One Job and its pods. `step` is called again and again; it never waits."""

    def __init__(self, manifest, node, holds):
        self.manifest = copy.deepcopy(manifest)
        self.manifest["status"] = {"conditions": [], "startTime": now()}
        self.pods = []
        self._node = node
        self._holds = holds
        self._spec = manifest["spec"]
        self._began = time.monotonic()
        self._num_failed = 0
        self._judged = set()  # pods whose end has been counted
        self._done = set()    # indexes that succeeded
        self._retry_at = 0
        self._verdict = None

    @property
    def finished(self):
        return any(c["type"] in ("Complete", "Failed")
                   for c in self.manifest["status"]["conditions"])

    def step(self):
        """Counts pods that ended, starts those that are missing, sets the Job's conditions."""
        if self.finished:
            return
        for pod in self.pods:
            if pod.ended.is_set() and pod not in self._judged:
                self._judged.add(pod)
                self._judge(pod)
        deadline = self._spec.get("activeDeadlineSeconds")
        if deadline is not None and time.monotonic() - self._began > deadline:
            self._fail("DeadlineExceeded", "Job was active longer than specified deadline")
        if self._verdict is not None:
            self._finish_failed()
        elif len(self._done) == self._spec["completions"]:
            self._condition("SuccessCriteriaMet", "CompletionsReached", "")
            self._condition("Complete", "CompletionsReached",
                            "Reached expected number of succeeded pods")
            self.manifest["status"]["completionTime"] = now()
        else:
            self._start_missing()
        active = [pod for pod in self.pods if not pod.ended.is_set()]
        self.manifest["status"].update(
            active=len(active), succeeded=len(self._done), failed=self._num_failed,
            ready=sum(all(c["ready"] for c in pod.api_object()["status"]["containerStatuses"])
                      for pod in active if pod.phase == "Running"))

    def stop(self):
        """Asks all pods to end, as the deletion of the Job does."""
        for pod in self.pods:
            pod.stop()

    def _judge(self, pod):
        index = int(pod.manifest["metadata"]["labels"][INDEX_LABEL])
        if pod.phase == "Succeeded":
            self._done.add(index)
            return
        self._num_failed += 1
        rule = self._failure_rule(pod)
        if rule is not None:
            number, container, code = rule
            self._fail("PodFailurePolicy",
                       f"Container {container} for pod {pod.manifest['metadata']['namespace']}/"
                       f"{pod.name} failed with exit code {code} matching FailJob rule at index "
                       f"{number}")
        elif self._num_failed > self._spec.get("backoffLimit", 6):
            self._fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        self._retry_at = time.monotonic() + min(360, FIRST_DELAY * 2 ** (self._num_failed - 1))

    def _failure_rule(self, pod):
        """Returns (number, container, code) of the first rule that a failed pod meets."""
        status = pod.api_object()["status"]
        for number, rule in enumerate(self._spec.get("podFailurePolicy", {}).get("rules", [])):
            wanted = rule["onExitCodes"]
            for container in status["containerStatuses"] + status["initContainerStatuses"]:
                if wanted.get("containerName") not in (None, container["name"]):
                    continue
                code = container["state"].get("terminated", {}).get("exitCode", 0)
                if code != 0 and (code in wanted["values"]) == (wanted["operator"] == "In"):
                    assert rule["action"] == "FailJob", "only FailJob is imitated"
                    return number, container["name"], code
        return None

    def _fail(self, reason, message):
        if self._verdict is None:
            self._verdict = reason, message
            self._condition("FailureTarget", reason, message)

    def _finish_failed(self):
        """Ends all other pods. The Job is Failed when they are gone; the API loses them."""
        for pod in self.pods:
            if pod not in self._judged:
                pod.removed = True
                pod.stop()
        if all(pod.ended.is_set() for pod in self.pods):
            self._condition("Failed", *self._verdict)

    def _start_missing(self):
        active = {int(pod.manifest["metadata"]["labels"][INDEX_LABEL])
                  for pod in self.pods if pod not in self._judged}
        for index in range(self._spec["completions"]):
            if len(active) >= self._spec.get("parallelism", 1):
                return
            if index not in active and index not in self._done:
                if time.monotonic() >= self._retry_at:
                    self._start_pod(index)
                    active.add(index)

    def _start_pod(self, index):
        job = self.manifest["metadata"]
        template = copy.deepcopy(self._spec["template"])
        suffix = "".join(secrets.choice(LETTERS) for _ in range(5))
        meta = template.setdefault("metadata", {})
        meta.update(name=f"{job['name']}-{index}-{suffix}", namespace=job["namespace"])
        meta["labels"] = {**meta.get("labels", {}), JOB_LABEL: job["name"],
                          "job-name": job["name"], INDEX_LABEL: str(index)}
        meta["annotations"] = {**meta.get("annotations", {}), INDEX_LABEL: str(index)}
        template["spec"]["hostname"] = f"{job['name']}-{index}"
        for group in ("initContainers", "containers"):
            for container in template["spec"].get(group, []):
                container.setdefault("env", []).append(
                    {"name": "JOB_COMPLETION_INDEX", "value": str(index)})
        pod = Pod({"apiVersion": "v1", "kind": "Pod", **template}, self._node,
                  self._holds.get(template["spec"]["hostname"], 0))
        self.pods.append(pod)
        pod.start()

    def _condition(self, kind, reason, message):
        self.manifest["status"]["conditions"].append(
            {"type": kind, "status": "True", "reason": reason, "message": message,
             "lastTransitionTime": now()})


INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
JOB_LABEL = "batch.kubernetes.io/job-name"

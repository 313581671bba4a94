"""One way to break an overlay for each rule, which the rule must notice.

A mutation has its rule's name and changes an Overlay in place. BREAKS names the overlay to break
where it is not `local`."""

from overlays import main_container

BREAKS = {"servers_keep_their_memory": "example", "image_is_pinned": "example",
          "gpus_are_limits": "gpu", "claims_serve_many_nodes": "example"}
MISSPELLED = [  # of the schema: the kind, the path to a field and what to write there
    ("Job", ("spec", "backofLimit"), 0),
    ("Job", ("spec", "template", "spec", "containers", 0, "ports", 0, "containerPort"), "7000"),
    ("Job", ("spec", "template", "spec", "volumes", 0, "configMap", "nam"), "job"),
    ("Job", ("spec", "template", "spec", "containers", 0, "resources", "limits", "cpu"), "1 core"),
    ("Service", ("spec", "publishNotReadyAddress"), True),
    ("NetworkPolicy", ("spec", "podSelector"), None),
    ("PodDisruptionBudget", ("spec", "minAvailable"), 1.5),
]

WRONG_COMMANDS = [  # of a README, after `kubectl apply -k deploy/k8s/overlays/local`
    "helm install tandem",
    "deploy/docker/build.sh --archiv tandem.tar",
    "deploy/docker/bild.sh tandem:local",
    "kubectl aply -k deploy/k8s/overlays/local",
    "kubectl apply -k deploy/k8s/overlays/lokal",
    "kubectl apply -k deploy/k8s/overlays/local -l app.kubernetes.io/component=storages",
    "kubectl -n tandm get job",
    "kubectl -n tandem get statefulset",
    "kubectl -n tandem wait --for=jsonpath='{.status.ready}'=3 job/trainer",
    "kubectl -n tandem wait --for=condition=Completed job/trainer",
    "kubectl -n tandem logs --folow -l batch.kubernetes.io/job-name=trainer",
    "kubectl -n tandem logs -l batch.kubernetes.io/job-completion-index=2",
    "kubectl -n tandem logs -c sidecar -l batch.kubernetes.io/job-name=trainer",
    "kubectl -n tandem delete job masters",
    "kubectl -n tandem exec file -- rm -r /out/run",
    "kubectl -n tandem cp files:/var/run/summary.json summary.json",
    "kubectl drain node-1",
]


def _container(overlay, name="ps"):
    return main_container(overlay.role(name))


def _tell(overlay, name, value, role="ps"):
    """Changes --NAME in a role's arguments."""
    arguments = _container(overlay, role)["args"]
    place = next(i for i, text in enumerate(arguments) if text.startswith(f"--{name}="))
    arguments[place] = f"--{name}={value}"


def _policy(overlay, name):
    return overlay.find("NetworkPolicy", name)["spec"]


def _remove(overlay, kind, name):
    overlay.objects.remove(overlay.find(kind, name))


def _mount(overlay, name, role="ps"):
    return next(item for item in _container(overlay, role)["volumeMounts"] if item["name"] == name)


def _volume(overlay, name, role="ps"):
    return next(item for item in overlay.role(role).pod["volumes"] if item["name"] == name)


def _set(target, *path_and_value):
    """Writes a value at a path of keys."""
    *path, last, value = path_and_value
    for step in path:
        target = target[step]
    target[last] = value


def _exit_code(overlay):
    overlay.role("ps").job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"].remove(70)


def _ignore(overlay):
    rules = overlay.role("ps").job["podFailurePolicy"]["rules"]
    rules.append({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]})


def _change_job(overlay):
    item = next(item for item in overlay.of("ConfigMap") if "job.textproto" in item["data"])
    item["data"]["job.textproto"] += "seed: 7\n"


def _rename(overlay):
    for job in overlay.of("Job"):
        job["metadata"]["name"] += "-of-a-run-whose-name-tells-more-than-a-host-name-may-hold"


def _twins(overlay):
    _container(overlay)["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]


MUTATIONS = {
    # Pods.
    "image_is_pinned": lambda o: _set(_container(o), "image", "registry.example/tandem:1"),
    "requests_are_given": lambda o: _container(o)["resources"]["requests"].pop("cpu"),
    "memory_is_limited": lambda o: _container(o, "master")["resources"]["limits"].pop("memory"),
    "servers_keep_their_memory":
        lambda o: _set(_container(o), "resources", "requests", "cpu", "1m"),
    "root_is_read_only": lambda o: _container(o)["securityContext"].pop("readOnlyRootFilesystem"),
    "tmp_is_writable": lambda o: _set(_mount(o, "tmp"), "mountPath", "/temporary"),
    "runs_as_nobody": lambda o: _set(o.role("ps").pod, "securityContext", "runAsUser", 0),
    "capabilities_are_dropped":
        lambda o: _set(_container(o), "securityContext", "capabilities", "add", ["NET_ADMIN"]),
    "privileges_do_not_grow":
        lambda o: _container(o)["securityContext"].pop("allowPrivilegeEscalation"),
    "system_calls_are_filtered":
        lambda o: o.role("ps").pod["securityContext"].pop("seccompProfile"),
    "host_stays_outside": lambda o: _set(_volume(o, "tmp"), "hostPath", {"path": "/tmp"}),
    "tokens_are_off": lambda o: o.role("ps").pod.pop("automountServiceAccountToken"),
    "probes_are_there": lambda o: _container(o)["readinessProbe"]["grpc"].pop("service"),
    "start_outlasts_the_join": lambda o: _set(_container(o), "startupProbe", "periodSeconds", 1),
    "last_words_are_kept": lambda o: _container(o).pop("terminationMessagePolicy"),
    "environment_has_no_twins": _twins,
    "gpus_are_limits":
        lambda o: _set(_volume(o, "shm", "trainer"), "emptyDir", "sizeLimit", "16Gi"),
    # Jobs.
    "all_roles_are_there": lambda o: _remove(o, "Job", "ps"),
    "restart_is_never": lambda o: _set(o.role("ps").pod, "restartPolicy", "OnFailure"),
    "nothing_is_tried_again": _ignore,
    "exit_codes_fail_the_job": _exit_code,
    "one_pod_has_a_rank": lambda o: o.role("ps").job.pop("podReplacementPolicy"),
    "ranks_are_indexes": lambda o: _set(o.role("ps").job, "completionMode", "NonIndexed"),
    "all_ranks_must_succeed":
        lambda o: _set(o.role("ps").job, "successPolicy", {"rules": [{"succeededIndexes": "0"}]}),
    "all_ranks_run_at_once": lambda o: _set(o.role("ps").job, "parallelism", 1),
    "jobs_have_an_end": lambda o: o.role("ps").job.pop("activeDeadlineSeconds"),
    "jobs_are_cleaned_up": lambda o: o.role("ps").job.pop("ttlSecondsAfterFinished"),
    "grace_fits_a_checkpoint":
        lambda o: _set(o.role("ps").pod, "terminationGracePeriodSeconds", 30),
    "evictions_are_refused":
        lambda o: _set(o.find("PodDisruptionBudget", "ps"), "spec", "minAvailable", "100%"),
    "counts_are_told": lambda o: _set(o.role("ps").job, "completions", 3),
    "layout_multiplies": lambda o: _tell(o, "tp", 2),
    "roles_are_told_alike": lambda o: _container(o)["args"].append("--set=seed=1"),
    "runs_resume": lambda o: _tell(o, "resume", "newest"),
    "names_are_short_enough": _rename,
    "local_is_the_quickstart": _change_job,
    # References.
    "namespace_is_one": lambda o: _set(o.find("Service", "ps"), "metadata", "namespace", "default"),
    "services_find_pods": lambda o: _set(o.find("Service", "ps"), "spec", "selector", {"a": "b"}),
    "services_tell_names_early":
        lambda o: o.find("Service", "ps")["spec"].pop("publishNotReadyAddresses"),
    "service_ports_are_the_pods":
        lambda o: _set(o.find("Service", "ps"), "spec", "ports", 0, "targetPort", "http"),
    "subdomains_are_services": lambda o: _set(o.role("ps").pod, "subdomain", "servers"),
    "addresses_lead_to_the_master": lambda o: _tell(o, "master", "master-0:7000"),
    "listening_ports_are_declared": lambda o: _tell(o, "listen", "0.0.0.0:7005"),
    "probed_ports_are_declared":
        lambda o: _set(_container(o), "livenessProbe", "grpc", "port", 7000),
    "accounts_are_there": lambda o: _remove(o, "ServiceAccount", "ps"),
    "volumes_lead_somewhere": lambda o: _set(_volume(o, "job"), "configMap", "name", "job"),
    "mounts_have_volumes": lambda o: o.role("ps").pod["volumes"].remove(_volume(o, "tmp")),
    "files_are_mounted": lambda o: _tell(o, "secret-file", "/etc/tandem/secret/word"),
    "secret_is_for_few": lambda o: _set(_volume(o, "secret"), "secret", "defaultMode", 0o444),
    "results_are_shared": lambda o: _tell(o, "out", "/tmp/run"),
    "claims_serve_many_nodes":
        lambda o: _set(o.find("PersistentVolumeClaim", "run"), "spec", "accessModes",
                       ["ReadWriteOnce"]),
    "data_is_read_only": lambda o: _mount(o, "data", "trainer").pop("readOnly"),
    "selectors_find_pods":
        lambda o: _set(_policy(o, "ps"), "podSelector", "matchLabels", {"role": "ps"}),
    "traffic_is_denied": lambda o: _remove(o, "NetworkPolicy", "default-deny"),
    "roles_reach_each_other":
        lambda o: _set(_policy(o, "trainer"), "ingress", 0, "ports", 0, "port", 1),
    "strangers_reach_nobody": lambda o: _policy(o, "ps")["ingress"][0].pop("from"),
    "names_can_be_asked_for": lambda o: _policy(o, "dns")["egress"][0]["ports"].pop(0),
}

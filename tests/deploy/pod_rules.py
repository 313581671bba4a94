"""Rules for pods and containers: security, resources, probes."""

from overlays import LOCAL_IMAGE, flag, main_container, megabytes, named, probes

GPU = "nvidia.com/gpu"
LAST_WORDS = "/dev/termination-log"  # where the program writes


def image_is_pinned(overlay):
    """A tag serves on the machine where the image was built. Registries need a digest."""
    for where, container in overlay.containers():
        if container["image"] != LOCAL_IMAGE and "@sha256:" not in container["image"]:
            yield f"{where}: image {container['image']} has no digest"


def requests_are_given(overlay):
    for where, container in overlay.containers():
        for name in {"cpu", "memory"} - set(container.get("resources", {}).get("requests", {})):
            yield f"{where}: resources.requests.{name} is missing"


def memory_is_limited(overlay):
    for where, container in overlay.containers():
        if "memory" not in container.get("resources", {}).get("limits", {}):
            yield f"{where}: resources.limits.memory is missing"


def servers_keep_their_memory(overlay):
    """No neighbour takes their memory. On one machine they share processors."""
    role = overlay.role("ps")
    resources = main_container(role)["resources"]
    for name in ("memory",) if overlay.is_local() else ("memory", "cpu"):
        if resources["requests"].get(name) != resources["limits"].get(name):
            yield f"{role.where}: resources.requests.{name} is not limits.{name}"


def root_is_read_only(overlay):
    for where, container in overlay.containers():
        if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
            yield f"{where}: securityContext.readOnlyRootFilesystem is not true"


def tmp_is_writable(overlay):
    """Roles write no other file of their own. emptyDir goes with the pod."""
    for role in overlay.roles():
        mounts = {item["mountPath"]: item["name"] for item in main_container(role)["volumeMounts"]}
        volumes = {item["name"]: item for item in role.pod["volumes"]}
        if "emptyDir" not in volumes.get(mounts.get("/tmp"), {}):
            yield f"{role.where}: volumeMounts: /tmp is no emptyDir"


def runs_as_nobody(overlay):
    for pod in overlay.pods():
        context = pod.spec.get("securityContext", {})
        if context.get("runAsNonRoot") is not True:
            yield f"{pod.where}: securityContext.runAsNonRoot is not true"
        for name in ("runAsUser", "runAsGroup", "fsGroup"):
            if not context.get(name):
                yield f"{pod.where}: securityContext.{name} is root's or missing"


def capabilities_are_dropped(overlay):
    for where, container in overlay.containers():
        capabilities = container.get("securityContext", {}).get("capabilities", {})
        if capabilities != {"drop": ["ALL"]}:
            yield f"{where}: securityContext.capabilities is not drop: [ALL]"


def privileges_do_not_grow(overlay):
    for where, container in overlay.containers():
        context = container.get("securityContext", {})
        if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
            yield f"{where}: securityContext.allowPrivilegeEscalation is not false"


def system_calls_are_filtered(overlay):
    for pod in overlay.pods():
        if pod.spec.get("securityContext", {}).get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{pod.where}: securityContext.seccompProfile is not RuntimeDefault"


def host_stays_outside(overlay):
    for pod in overlay.pods():
        for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
            if pod.spec.get(name):
                yield f"{pod.where}: {name} is set"
        for volume in pod.spec.get("volumes", []):
            if "hostPath" in volume:
                yield f"{pod.where}: volumes.{volume['name']} is a hostPath"
    for where, container in overlay.containers():
        for port in container.get("ports", []):
            if "hostPort" in port:
                yield f"{where}: ports.{port['name']}.hostPort is set"


def tokens_are_off(overlay):
    """No role talks to the API server."""
    for pod in overlay.pods():
        if pod.spec.get("automountServiceAccountToken") is not False:
            yield f"{pod.where}: automountServiceAccountToken is not false"
    for item in overlay.of("ServiceAccount"):
        if item.get("automountServiceAccountToken") is not False:
            yield f"{named(item)}: automountServiceAccountToken is not false"


def probes_are_there(overlay):
    """Alive is the service "". Ready is registered, with rows loaded."""
    wanted = {"startupProbe": "", "livenessProbe": "", "readinessProbe": "ready"}
    for role in overlay.roles():
        found = {name: probe.get("grpc", {}).get("service", "") if "grpc" in probe else None
                 for name, probe in probes(main_container(role))}
        for name, service in wanted.items():
            if found.get(name) != service:
                yield f"{role.where}: {name} does not ask gRPC for \"{service}\""


def start_outlasts_the_join(overlay):
    """A role that waits for others is not broken."""
    for role in overlay.roles():
        probe = main_container(role).get("startupProbe", {})
        patience = probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10)
        if patience <= float(flag(role, "join-timeout") or 0):
            yield f"{role.where}: startupProbe gives up after {patience} s, before --join-timeout"


def last_words_are_kept(overlay):
    for where, container in overlay.containers():
        if container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            yield f"{where}: terminationMessagePolicy is not FallbackToLogsOnError"
        if container.get("terminationMessagePath", LAST_WORDS) != LAST_WORDS:
            yield f"{where}: terminationMessagePath is not where the program writes"


def environment_has_no_twins(overlay):
    for where, container in overlay.containers():
        names = [item["name"] for item in container.get("env", [])]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{where}: env.{name} is there twice"


def gpus_are_limits(overlay):
    """A GPU is requested by its limit. NCCL's shared memory counts as the container's."""
    for role in overlay.roles():
        resources = main_container(role)["resources"]
        if GPU in resources["requests"]:
            yield f"{role.where}: resources.requests.{GPU} belongs to the limits"
        for volume in role.pod["volumes"]:
            directory = volume.get("emptyDir", {})
            if directory.get("medium") != "Memory":
                continue
            if "sizeLimit" not in directory:
                yield f"{role.where}: volumes.{volume['name']}.emptyDir.sizeLimit is missing"
            elif megabytes(directory["sizeLimit"]) >= megabytes(resources["limits"]["memory"]):
                yield f"{role.where}: volumes.{volume['name']} is larger than limits.memory"

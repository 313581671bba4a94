"""Lists every field that the mini-cluster acts on, and every one that it leaves aside.

A rendered field that is in no list is an error. So a manifest never passes here because of a word
that nobody read. In a pattern `*` stands for one key and `**` for all that follows.
"""

from .machine import ClusterError

CONTAINER = """
name command[] args[] workingDir image
env[].name env[].value
env[].valueFrom.fieldRef.fieldPath env[].valueFrom.fieldRef.apiVersion
env[].valueFrom.configMapKeyRef.name env[].valueFrom.configMapKeyRef.key
env[].valueFrom.secretKeyRef.name env[].valueFrom.secretKeyRef.key
envFrom[].configMapRef.name
volumeMounts[].name volumeMounts[].mountPath volumeMounts[].readOnly volumeMounts[].subPath
resources.limits.memory resources.limits.cpu
securityContext.readOnlyRootFilesystem securityContext.allowPrivilegeEscalation
securityContext.runAsUser securityContext.runAsGroup securityContext.runAsNonRoot
securityContext.capabilities.drop[]
terminationMessagePath terminationMessagePolicy
""".split()

PROBES = [f"{kind}.{field}" for kind in ("startupProbe", "livenessProbe", "readinessProbe")
          for field in ("grpc.port", "grpc.service", "initialDelaySeconds", "periodSeconds",
                        "timeoutSeconds", "failureThreshold", "successThreshold")]

POD = """
metadata.labels.* spec.subdomain spec.terminationGracePeriodSeconds
spec.securityContext.runAsUser spec.securityContext.runAsGroup spec.securityContext.runAsNonRoot
spec.securityContext.fsGroup spec.securityContext.fsGroupChangePolicy
spec.securityContext.supplementalGroups[]
spec.volumes[].name
spec.volumes[].configMap.name spec.volumes[].configMap.defaultMode
spec.volumes[].configMap.items[].key spec.volumes[].configMap.items[].path
spec.volumes[].secret.secretName spec.volumes[].secret.defaultMode
spec.volumes[].secret.items[].key spec.volumes[].secret.items[].path
spec.volumes[].emptyDir spec.volumes[].emptyDir.medium spec.volumes[].emptyDir.sizeLimit
spec.volumes[].persistentVolumeClaim.claimName spec.volumes[].persistentVolumeClaim.readOnly
""".split()
POD += [f"spec.{group}[].{field}" for group in ("containers", "initContainers")
        for field in CONTAINER]
POD += [f"spec.containers[].{field}" for field in PROBES]

ACTED = {
    "Job": """spec.completions spec.parallelism spec.backoffLimit spec.activeDeadlineSeconds
        spec.podFailurePolicy.rules[].action
        spec.podFailurePolicy.rules[].onExitCodes.containerName
        spec.podFailurePolicy.rules[].onExitCodes.operator
        spec.podFailurePolicy.rules[].onExitCodes.values[]""".split()
           + ["spec.template." + field for field in POD],
    "Service": "spec.selector.* spec.publishNotReadyAddresses".split(),
    "ConfigMap": ["data.*"],
    "Secret": ["data.*", "stringData.*"],
}

# Fields that the mini-cluster knows with one value only: any other value is an error.
FIXED = {
    "Job": {"spec.completionMode": "Indexed", "spec.podReplacementPolicy": "Failed",
            "spec.suspend": False, "spec.template.spec.restartPolicy": "Never"},
    "Service": {"spec.clusterIP": "None"},
}

NO_NODES = "one node: there is nothing to choose"
NO_API = "there is no API server to talk to"
UNUSED_IN_CONTAINERS = {
    "imagePullPolicy": "the image is this machine's /usr",
    "ports[].**": "a pod's network has every port open; Kubernetes only shows the list",
    "resources.requests.**": NO_NODES,
    "securityContext.seccompProfile.**": "the profile belongs to the container runtime",
    "securityContext.privileged": "the checks allow false alone",
}
UNUSED_IN_PODS = {
    "metadata.annotations.**": "for programs that are not here",
    "spec.automountServiceAccountToken": NO_API,
    "spec.serviceAccountName": NO_API,
    "spec.enableServiceLinks": "headless Services have no links",
    "spec.affinity.**": NO_NODES,
    "spec.nodeSelector.**": NO_NODES,
    "spec.priorityClassName": NO_NODES,
    "spec.tolerations[].**": NO_NODES,
    "spec.topologySpreadConstraints[].**": NO_NODES,
    "spec.securityContext.seccompProfile.**": "the profile belongs to the container runtime",
}
UNUSED_IN_PODS.update({f"spec.{group}[].{field}": why for field, why in UNUSED_IN_CONTAINERS.items()
                       for group in ("containers", "initContainers")})

UNUSED = {
    "Job": {"metadata.annotations.**": "for programs that are not here",
            "spec.ttlSecondsAfterFinished": "the tests read Jobs that ended, then delete them",
            **{"spec.template." + field: why for field, why in UNUSED_IN_PODS.items()}},
    "Service": {"spec.ports[].**": "a headless Service gives names; ports play no part",
                "spec.type": "a headless Service has one type",
                "metadata.annotations.**": "for programs that are not here"},
    "ConfigMap": {"metadata.annotations.**": "for programs that are not here"},
    "Secret": {"type": "every type is mounted in one way",
               "metadata.annotations.**": "for programs that are not here"},
    "PersistentVolumeClaim": {"spec.**": "a claim is a folder of this machine",
                              "metadata.annotations.**": "for programs that are not here"},
    "ServiceAccount": {"**": NO_API},
    "NetworkPolicy": {"**": "the checks read it; only a real network enforces it"},
    "PodDisruptionBudget": {"**": "nothing is evicted here"},
    "Namespace": {"**": "a namespace is a part of names; admission is not imitated"},
}

EVERYWHERE = ["apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.labels.*"]


def check(objects):
    """Raises ClusterError with a line for each field that is in no list or has a value unknown."""
    wrong = []
    for item in objects:
        kind, name = item.get("kind"), item.get("metadata", {}).get("name")
        if kind not in ACTED and kind not in UNUSED:
            wrong.append(f"{kind}/{name}: the mini-cluster does not know the kind")
            continue
        known = [_split(p) for p in EVERYWHERE + ACTED.get(kind, []) + list(UNUSED.get(kind, {}))]
        for path, value in _leaves(item, ()):
            shown = ".".join(path).replace(".[", "[")
            pattern = shown_without_indexes(path)
            if pattern in FIXED.get(kind, {}):
                if value != FIXED[kind][pattern]:
                    wrong.append(f"{kind}/{name}: {shown}: {value} is not imitated, only "
                                 f"{FIXED[kind][pattern]}")
            elif not any(_matches(path, p) for p in known):
                wrong.append(f"{kind}/{name}: {shown}: the mini-cluster does not know the field")
    if wrong:
        raise ClusterError("\n".join(wrong))


def shown_without_indexes(path):
    return ".".join("[]" if part.startswith("[") else part for part in path).replace(".[", "[")


def _split(pattern):
    return pattern.replace("[]", ".[]").split(".")


def _matches(path, pattern):
    for at, part in enumerate(pattern):
        if part == "**":
            return True
        if at == len(path):
            return False
        if not (part == "*" or part == path[at] or part == "[]" and path[at].startswith("[")):
            return False
    return len(path) == len(pattern)


def _leaves(value, path):
    """Yields (path, value) of every scalar and every empty list or map."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, path + (str(key),))
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value):
            yield from _leaves(inner, path + (f"[{at}]",))
    else:
        yield path, value

"""Rules for what objects say of each other: every name, port, label and path leads somewhere."""

from overlays import ROLES, containers, flag, main_container, named, probes, selects

COMPONENT = "app.kubernetes.io/component"
CLUSTER_WIDE = {"Namespace"}
# The field of a volume that names an object of the kind, and its key.
SOURCES = {"ConfigMap": ("configMap", "name"), "Secret": ("secret", "secretName"),
           "PersistentVolumeClaim": ("persistentVolumeClaim", "claimName")}
# Who opens connections to whom. A port of None stands for every port.
CONNECTIONS = [("ps", "master", 7000), ("trainer", "master", 7000), ("trainer", "ps", 7001),
               ("trainer", "trainer", None)]


def namespace_is_one(overlay):
    """The namespace admits only restricted pods, and holds everything."""
    spaces = overlay.of("Namespace")
    if len(spaces) != 1:
        yield f"Namespace: {len(spaces)} of them"
        return
    name = spaces[0]["metadata"]["name"]
    if spaces[0]["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") != "restricted":
        yield f"Namespace {name}: labels: pod-security.kubernetes.io/enforce is not restricted"
    for item in overlay.objects:
        if item["kind"] not in CLUSTER_WIDE and item["metadata"].get("namespace") != name:
            yield f"{named(item)}: metadata.namespace is not {name}"


def services_find_pods(overlay):
    for item in overlay.of("Service"):
        if not any(_has(item["spec"]["selector"], role.labels) for role in overlay.roles()):
            yield f"{named(item)}: selector selects no pod"


def services_tell_names_early(overlay):
    """Roles meet before they are ready, by names that lead to pods."""
    for item in overlay.of("Service"):
        if item["spec"].get("clusterIP") != "None":
            yield f"{named(item)}: clusterIP is not None"
        if item["spec"].get("publishNotReadyAddresses") is not True:
            yield f"{named(item)}: publishNotReadyAddresses is not true"


def service_ports_are_the_pods(overlay):
    for item in overlay.of("Service"):
        for role in overlay.roles():
            if not _has(item["spec"]["selector"], role.labels):
                continue
            ports = {port["name"]: port["containerPort"] for port in main_container(role)["ports"]}
            for port in item["spec"]["ports"]:
                if ports.get(port["targetPort"]) != port["port"]:
                    where = f"{named(item)}: ports.{port['name']}"
                    yield f"{where}: {role.where} has no such port"


def subdomains_are_services(overlay):
    for role in overlay.roles():
        service = overlay.find("Service", role.pod.get("subdomain"))
        if not service or not _has(service["spec"]["selector"], role.labels):
            yield f"{role.where}: subdomain {role.pod.get('subdomain')} is no Service of its pods"


def addresses_lead_to_the_master(overlay):
    """kustomize changes no address in arguments, whatever it renames."""
    master = overlay.role("master")
    port = (flag(master, "listen") or ":").rsplit(":", 1)[1]
    wanted = f"{master.host}-0.{master.pod.get('subdomain')}:{port}"
    for role in overlay.roles():
        if role.name != "master" and flag(role, "master") != wanted:
            yield f"{role.where}: args: --master is {flag(role, 'master')}, not {wanted}"


def listening_ports_are_declared(overlay):
    for role in overlay.roles():
        address = flag(role, "health" if role.name == "trainer" else "listen")
        ports = [port["containerPort"] for port in main_container(role).get("ports", [])]
        if not address or int(address.rsplit(":", 1)[1]) not in ports:
            yield f"{role.where}: ports: {address}, where it listens, is not among them"


def probed_ports_are_declared(overlay):
    for where, container in overlay.containers():
        ports = [port["containerPort"] for port in container.get("ports", [])]
        for name, probe in probes(container):
            if probe.get("grpc", {}).get("port") not in ports:
                yield f"{where}: {name}: its port is not among the container's"


def accounts_are_there(overlay):
    for role in overlay.roles():
        if not overlay.find("ServiceAccount", role.pod.get("serviceAccountName")):
            yield f"{role.where}: serviceAccountName names no ServiceAccount"


def volumes_lead_somewhere(overlay):
    """ConfigMaps, Secrets and claims that volumes name are rendered too, under the same name."""
    for pod in overlay.pods():
        for volume in pod.spec.get("volumes", []):
            for kind, (source, key) in SOURCES.items():
                if source in volume and not overlay.find(kind, volume[source][key]):
                    yield f"{pod.where}: volumes.{volume['name']}: no {kind} {volume[source][key]}"


def mounts_have_volumes(overlay):
    for pod in overlay.pods():
        volumes = {volume["name"] for volume in pod.spec.get("volumes", [])}
        for container in containers(pod.spec):
            where = f"{pod.where} {container['name']}: volumeMounts"
            paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    yield f"{where}: no volume {mount['name']}"
                if paths.count(mount["mountPath"]) > 1:
                    yield f"{where}: two at {mount['mountPath']}"


def files_are_mounted(overlay):
    """The job file and the secret are where the arguments say."""
    for role in overlay.roles():
        paths = {"ConfigMap": main_container(role)["args"][1], "Secret": flag(role, "secret-file")}
        for kind, path in paths.items():
            source, key = SOURCES[kind]
            mount, volume = _mounted(role, path or "")
            item = overlay.find(kind, volume.get(source, {}).get(key))
            name = mount.get("subPath") or (path or "").rsplit("/", 1)[-1]
            if not item or name not in item.get("data", {}):
                yield f"{role.where}: args: {path} is in no {kind} that is mounted"


def secret_is_for_few(overlay):
    """The program refuses a secret that every user of the machine can read."""
    for role in overlay.roles():
        for volume in role.pod["volumes"]:
            if "secret" in volume and volume["secret"].get("defaultMode", 0o644) & 0o007:
                yield f"{role.where}: volumes.{volume['name']}.secret.defaultMode is for all users"


def results_are_shared(overlay):
    """All roles write below --out, so all mount the same claim there."""
    claims = {}
    for role in overlay.roles():
        mount, volume = _mounted(role, flag(role, "out") or "")
        claims[role.where] = volume.get("persistentVolumeClaim", {}).get("claimName")
        if not claims[role.where] or mount.get("readOnly"):
            yield f"{role.where}: args: --out is in no claim that it may write"
    if len(set(claims.values())) != 1:
        yield f"claims below --out differ: {claims}"


def claims_serve_many_nodes(overlay):
    """On one machine a claim for one node serves."""
    for item in overlay.of("PersistentVolumeClaim"):
        if not overlay.is_local() and item["spec"]["accessModes"] != ["ReadWriteMany"]:
            yield f"{named(item)}: accessModes is not ReadWriteMany"


def data_is_read_only(overlay):
    """Jobs only read data, and only trainers do."""
    for role in overlay.roles():
        mounts = [mount for mount in main_container(role)["volumeMounts"]
                  if mount["name"] == "data"]
        if (role.name == "trainer") != bool(mounts):
            yield f"{role.where}: volumeMounts: data is for trainers"
        if not all(mount.get("readOnly") for mount in mounts):
            yield f"{role.where}: volumeMounts.data.readOnly is not true"


def selectors_find_pods(overlay):
    """Budgets, policies and spreading select pods of the render."""
    for item in overlay.of("PodDisruptionBudget") + overlay.of("NetworkPolicy"):
        spec = item["spec"]
        selectors = [spec.get("selector"), spec.get("podSelector")]
        for rule in spec.get("ingress", []) + spec.get("egress", []):
            peers = rule.get("from", []) + rule.get("to", [])
            selectors += [peer.get("podSelector") for peer in peers]
        for selector in filter(None, selectors):
            if not any(selects(selector, pod.labels) for pod in overlay.pods()):
                yield f"{named(item)}: selector {selector} selects no pod"
    for role in overlay.roles():
        for spread in role.pod.get("topologySpreadConstraints", []):
            if not selects(spread["labelSelector"], role.labels):
                yield f"{role.where}: topologySpreadConstraints.labelSelector selects other pods"


def traffic_is_denied(overlay):
    """One policy selects every pod and allows nothing, both ways."""
    for item in overlay.of("NetworkPolicy"):
        spec = item["spec"]
        if (spec["podSelector"] == {} and set(spec["policyTypes"]) == {"Ingress", "Egress"}
                and not spec.get("ingress") and not spec.get("egress")):
            return
    yield "NetworkPolicy: none denies everything to every pod"


def roles_reach_each_other(overlay):
    """Servers and trainers reach the master, trainers the servers and, at any port, each other."""
    for source, target, port in CONNECTIONS:
        for way, own, peer in (("egress", source, target), ("ingress", target, source)):
            if not any(_allows(entry, way, overlay.role(peer).labels, port)
                       for entry in _entries(overlay, way, overlay.role(own).labels)):
                yield f"NetworkPolicy {own}: {way}: {source} does not reach {target}"


def strangers_reach_nobody(overlay):
    """Nothing outside the job is let in, whatever its port."""
    for item in overlay.of("NetworkPolicy"):
        for entry in item["spec"].get("ingress", []):
            peers = entry.get("from", [])
            names = [peer.get("podSelector", {}).get("matchLabels", {}).get(COMPONENT)
                     for peer in peers]
            if not names or not set(names) <= set(ROLES):
                yield f"{named(item)}: ingress: from everybody"


def names_can_be_asked_for(overlay):
    for role in overlay.roles():
        # Clusters answer names at different addresses.
        anywhere = [entry for entry in _entries(overlay, "egress", role.labels)
                    if "to" not in entry]
        for protocol in ("UDP", "TCP"):
            wanted = {"port": 53, "protocol": protocol}
            if not any(wanted in entry.get("ports", []) for entry in anywhere):
                yield f"NetworkPolicy: egress: {role.where} cannot ask for names over {protocol}"


def _entries(overlay, way, labels):
    """The entries of all policies that hold for a pod with `labels`."""
    return [entry for item in overlay.of("NetworkPolicy")
            if selects(item["spec"]["podSelector"], labels)
            for entry in item["spec"].get(way, [])]


def _allows(entry, way, labels, port):
    peers = entry.get("from" if way == "ingress" else "to", [])
    ports = [item.get("port") for item in entry.get("ports", []) if item["protocol"] == "TCP"]
    reached = any(selects(peer["podSelector"], labels) for peer in peers)
    return reached and (None in ports or port in ports)


def _has(selector, labels):
    """If a Service's selector selects pods with `labels`."""
    return all(labels.get(key) == value for key, value in selector.items())


def _mounted(role, path):
    """The mount of the role's container that holds `path`, and its volume. Empty without one."""
    mounts = [mount for mount in main_container(role)["volumeMounts"]
              if path == mount["mountPath"] or path.startswith(mount["mountPath"] + "/")]
    if not mounts:
        return {}, {}
    mount = max(mounts, key=lambda item: len(item["mountPath"]))
    return mount, next(item for item in role.pod["volumes"] if item["name"] == mount["name"])

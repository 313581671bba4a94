"""Parses the commands of the READMEs about clusters. Programs, flags, files and names must exist.
A name is looked up in the overlay that the commands before it have applied."""

import re
import shlex

import command_help
import overlays
import render

K8S = "deploy/k8s/README.md"
PAGES = {K8S: None, "deploy/k8s/overlays/jobset/README.md": None, "deploy/README.md": "tandem"}
KNOWN = {"kind", "minikube", "buildah", "umask", "head", "base64", "grep"}
KINDS = {"job": "Job", "jobs": "Job", "pod": "Pod", "pods": "Pod", "jobset": "JobSet"}
CONDITIONS = {"Job": {"Complete", "Failed"}, "Pod": {"Ready"}, "JobSet": {"Completed", "Failed"}}
PLACEHOLDER = re.compile(r"[A-Z_]+")
FOLDERS = ("deploy/", "examples/", "tests/")


def commands(page, program):
    """The commands of a page, each a list of words. Redirections are words like ">FILE".
    With a program, only lines that begin with it."""
    text = (render.ROOT / page).read_text()
    blocks = re.findall(r"^ *```\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines += [code for code in re.findall(r"`([^`]+)`", prose) if code.startswith("kubectl -")]
    return [words for line in lines if not program or line.startswith(program + " ")
            for words in split(line)]


def split(line):
    """The commands of a line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found, words, redirected = [], [], False
    for word in lexer:
        if word in (">", ">>", "<"):
            redirected = True
        elif re.fullmatch(r"[();|&]+", word):
            found, words = found + [words], []
        else:
            words.append(">" + word if redirected else word)
            redirected = False
    return [words for words in found + [words] if words]


class Reader:
    """Reads the commands of a page in order. Remembers the overlay that is applied."""

    def __init__(self):
        self.overlay = None

    def findings(self, words):
        program = words[0]
        found = list(_files(words))
        if program == "kubectl":
            try:
                found += self._kubectl(command_help.parse_kubectl(words[1:]))
            except command_help.Wrong as error:
                found.append(str(error))
        elif program == "tandem":
            found += command_help.tandem_findings(words[1:])
        elif "/" in program:
            found += command_help.script_findings(words)
        elif program not in KNOWN:
            found.append(f"{program} is no program that this test knows")
        return found

    def _kubectl(self, command):
        folder = command.flags.get("kustomize")
        if folder:
            self._apply(folder)
        if not self.overlay:
            yield "nothing is applied yet"
            return
        space = command.flags.get("namespace")
        if space and not self.overlay.find("Namespace", space):
            yield f"there is no namespace {space}"
        if "selector" in command.flags:
            yield from self._selector(command)
        if "for" in command.flags:
            yield from self._awaited(command)
        yield from self._names(command)

    def _apply(self, folder):
        if not (render.ROOT / folder / "kustomization.yaml").is_file():
            raise command_help.Wrong(f"{folder} holds no kustomization.yaml")
        name = folder.split("overlays/", 1)[1].split("/")[0]
        self.overlay = overlays.load(name)

    def _labels(self, command):
        """Labels of each object that a selector may select: what is applied, or pods."""
        if command.verb == "apply":
            return [item["metadata"].get("labels", {}) for item in self.overlay.objects]
        pods = [pod.labels for pod in self.overlay.pods()]
        for role in self.overlay.roles():
            for index in range(role.job["completions"]):
                # The Job controller adds these.
                pods.append({**role.labels, "batch.kubernetes.io/job-name": role.host,
                             "batch.kubernetes.io/job-completion-index": str(index)})
        return pods

    def _selector(self, command):
        selector = command.flags["selector"]
        wanted = dict(pair.split("=", 1) for pair in selector.split(","))
        if not any(overlays.selects({"matchLabels": wanted}, labels)
                   for labels in self._labels(command)):
            yield f"-l {selector} selects nothing"

    def _awaited(self, command):
        """condition=NAME, or jsonpath={.status.ready}=N with N pods."""
        kind, awaited = None, command.flags["for"]
        for kind, name in self._named(command):
            if awaited.startswith("condition="):
                if awaited.split("=", 1)[1] not in CONDITIONS.get(kind, set()):
                    yield f"--for={awaited} is no condition of a {kind}"
            elif awaited != f"jsonpath={{.status.ready}}={self._completions(name)}":
                yield f"--for={awaited} is not what {kind} {name} comes to"
        if not kind:
            yield "wait names nothing"

    def _completions(self, name):
        return self.overlay.role(name).job["completions"]

    def _named(self, command):
        """Pairs of kind and name, the name None for all of the kind."""
        words = command.words
        if command.verb == "exec" or (command.verb == "logs" and words and "/" not in words[0]):
            return [("Pod", word) for word in words]
        if command.verb not in ("wait", "get", "describe", "delete", "logs"):
            return []
        if words and "/" not in words[0]:
            return [(KINDS.get(words[0], words[0]), name) for name in words[1:] or [None]]
        return [(KINDS.get(kind, kind), name) for kind, name in (word.split("/") for word in words)]

    def _names(self, command):
        for kind, name in self._named(command):
            if kind not in KINDS.values():
                yield f"{kind} is no kind that this test knows"
            elif name and not self.overlay.find(kind, name):
                yield f"overlay {self.overlay.name} has no {kind} {name}"
        if command.verb == "cp":
            yield from self._copied(command.words)
        if command.verb in ("drain", "uncordon") and not PLACEHOLDER.fullmatch(command.words[0]):
            yield f"{command.words[0]} is the name of a node of one cluster"
        container = command.flags.get("container")
        if container and container not in {item["name"] for _, item in self.overlay.containers()}:
            yield f"there is no container {container}"

    def _copied(self, words):
        remote = [word.split(":", 1) for word in words if ":" in word]
        if len(words) != 2 or len(remote) != 1:
            yield "cp takes one path of a pod and one of this machine"
        for name, path in remote:
            pod = self.overlay.find("Pod", name)
            mounts = pod["spec"]["containers"][0]["volumeMounts"] if pod else []
            if not any(path.startswith(mount["mountPath"] + "/") for mount in mounts):
                yield f"pod {name} mounts nothing at {path}"


def _files(words):
    """Files of the repository are there. Those that users write have at least their folder."""
    for word in words:
        written = word.startswith(">")
        path = render.ROOT / word.lstrip(">")
        if word.lstrip(">").startswith(FOLDERS) and not (path.parent if written else path).exists():
            yield f"there is no {word.lstrip('>')}"


def check(report):
    for page, program in PAGES.items():
        reader, found = Reader(), commands(page, program)
        for words in found:
            report.add(f"{page}: {' '.join(words)[:90]}", reader.findings(words))
        report.add(f"{page}: {len(found)} commands", [] if found else ["no command was found"])
    if not command_help.binary():
        print("[  PARTLY  ] flags of tandem are left out: no build/tandem and no TANDEM")
    for name in render.overlays():
        found = []
        for where, container in overlays.load(name).containers():
            if container["command"] == ["tandem"]:
                lines = command_help.tandem_findings(container["args"])
                found += [f"{where}: {line}" for line in lines]
        report.add(f"overlay {name}: arguments", found)



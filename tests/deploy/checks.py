"""Checks what the overlays of deploy/k8s render, without a cluster.

usage: checks.py checks [--update-golden] | mutations | readme
Prints a line for each check. Ends with 1 if any fails, with 0 if the machine cannot run them."""

import argparse
import copy
import difflib
import sys

import yaml

import mutations
import overlays
import readme_commands
import render
import rules
import schema


class Report:
    """Prints each result once and counts failures."""

    def __init__(self):
        self.failed = 0

    def add(self, name, findings):
        print(f"[  {'FAILED' if findings else 'OK':7} ] {name}")
        for line in findings:
            print(f"             {line}")
        self.failed += bool(findings)


def _canonical(text):
    """Text that is equal for renders that mean the same, whichever kubectl wrote them."""
    return yaml.safe_dump_all(yaml.safe_load_all(text), sort_keys=True).splitlines()


def _golden(report, update):
    """A change of a render is to be seen, and reviewed, as a change of a golden file."""
    wanted = {render.golden_file(name) for name in render.renders()}
    for path in set(render.GOLDEN.glob("*.yaml")) - wanted:
        report.add(f"golden {path.name}", ["is the render of no overlay"])
    for name in render.renders():
        path = render.golden_file(name)
        text = render.render(name)
        if update:
            path.write_text(text)
        old = path.read_text() if path.is_file() else ""
        changes = list(difflib.unified_diff(_canonical(old), _canonical(text), "golden", "render",
                                            lineterm=""))
        if changes:
            changes.append("after a review: tests/deploy/run.sh checks --update-golden")
        report.add(f"golden {path.name}", changes)


def _official():
    """The schema, None where there is none."""
    try:
        return schema.Schema(render.openapi())
    except render.Skipped as reason:
        # Not the word by which ctest takes the whole test for skipped.
        print(f"[  PARTLY  ] the schema is left out: {reason}")
        return None


def _schema(report):
    official = _official()
    if not official:
        return
    for name in render.overlays():
        known = [item for item in overlays.load(name).objects if official.knows(item)]
        report.add(f"schema {name}: {len(known)} objects",
                   [line for item in known for line in official.findings(item)])


def checks(report, update):
    _golden(report, update)
    _schema(report)
    for name in render.overlays():
        report.add(f"rules {name}: {len(rules.RULES)}", rules.findings(overlays.load(name)))


def _survives(name):
    """If a rule misses its mutation, the reason."""
    whole = overlays.load(mutations.BREAKS.get(name, "local"))
    broken = whole.copied()
    mutations.MUTATIONS[name](broken)
    if broken.objects == whole.objects:
        return ["the mutation changes nothing"]
    if list(rules.RULES[name](whole)):
        return ["the rule finds something without the mutation"]
    return [] if list(rules.RULES[name](broken)) else ["the rule does not notice its mutation"]


def _misspelled(report):
    official = _official()
    if not official:
        return
    for kind, path, value in mutations.MISSPELLED:
        item = copy.deepcopy(overlays.load("local").of(kind)[0])
        target = item
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        found = [] if official.findings(item) else [f"{value!r} is not noticed"]
        report.add(f"schema {kind} {'.'.join(map(str, path))}", found)


def _wrong_commands(report):
    for line in mutations.WRONG_COMMANDS:
        reader = readme_commands.Reader()
        reader.findings(["kubectl", "apply", "-k", "deploy/k8s/overlays/local"])
        found = [text for words in readme_commands.split(line) for text in reader.findings(words)]
        report.add(f"README: {line}", [] if found else ["the mistake is not noticed"])


def mutate(report):
    for name in sorted(set(rules.RULES) | set(mutations.MUTATIONS)):
        if name not in mutations.MUTATIONS:
            report.add(name, ["the rule has no mutation"])
        elif name not in rules.RULES:
            report.add(name, ["the mutation has no rule"])
        else:
            report.add(name, _survives(name))
    _misspelled(report)
    _wrong_commands(report)
    print(f"{len(rules.RULES)} rules, {len(mutations.MUTATIONS)} mutations")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["checks", "mutations", "readme"])
    parser.add_argument("--update-golden", action="store_true", help="write the golden files anew")
    arguments = parser.parse_args()
    report = Report()
    try:
        render.kubectl()
        if arguments.what == "checks":
            checks(report, arguments.update_golden)
        elif arguments.what == "mutations":
            mutate(report)
        else:
            readme_commands.check(report)
    except render.Skipped as reason:
        print(f"[  SKIPPED ] {reason}")
        return 0
    print(f"{report.failed} failed" if report.failed else "all is well")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""All rules by name. Every public function of the three modules is a rule: it takes an Overlay and
yields a line for each violation, which names the object and the field."""

import inspect

import job_rules
import pod_rules
import reference_rules


def _collect():
    found = {}
    for module in (pod_rules, job_rules, reference_rules):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                found[name] = function
    return found


RULES = _collect()


def findings(overlay):
    """A line for each violation of any rule, with the rule's name."""
    missing = list(job_rules.all_roles_are_there(overlay))
    if missing:  # the other rules look at all roles
        return [f"all_roles_are_there: {line}" for line in missing]
    return [f"{name}: {line}" for name, check in RULES.items() for line in check(overlay)]

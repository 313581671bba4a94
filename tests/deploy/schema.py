"""Holds objects to the official OpenAPI definitions. Unknown fields are errors, as they are for a
server with strict validation."""

import copy

import jsonschema

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
# Numbers with a suffix: 100m, 1.5Gi, 2e3.
NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$"


class Schema:
    def __init__(self, definitions):
        self._definitions = {name: _closed(item) for name, item in definitions.items()}
        self._definitions[QUANTITY] = {
            "anyOf": [{"type": "number"}, {"type": "string", "pattern": NUMBER}]}
        self._definitions[INT_OR_STRING] = {"type": ["integer", "string"]}
        self._kinds = {}
        for name, item in definitions.items():
            for kind in item.get("x-kubernetes-group-version-kind", []):
                version = "/".join(filter(None, (kind["group"], kind["version"])))
                self._kinds[version, kind["kind"]] = name

    def knows(self, item):
        return (item["apiVersion"], item["kind"]) in self._kinds

    def findings(self, item):
        """A line for each field that is wrong. REQUIRES: knows(item)."""
        name = self._kinds[item["apiVersion"], item["kind"]]
        validator = jsonschema.Draft7Validator(
            {"$ref": f"#/definitions/{name}", "definitions": self._definitions})
        where = f"{item['kind']} {item['metadata']['name']}"
        return [f"{where}: {_path(error)}: {error.message[:200]}"
                for error in validator.iter_errors(item)]


def _closed(definition):
    """A definition that allows only its own properties."""
    closed = copy.deepcopy(definition)
    if "properties" in closed and "additionalProperties" not in closed:
        closed["additionalProperties"] = False
    for item in closed.get("properties", {}).values():
        # Draft 7 ignores what stands beside $ref.
        if "$ref" in item:
            reference = item["$ref"]
            item.clear()
            item["$ref"] = reference
    return closed


def _path(error):
    return ".".join(str(step) for step in error.absolute_path) or "(the object)"

"""Holds docs/kubernetes against schemas. Runs in the environment with the validator that scripts/bootstrap --packages makes.

    manifests.py VERSION FILE ...      prints each document's kind, and what is wrong with it; ends with 1 when anything is
"""

import json
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

OPERATOR = json.loads(Path(__file__).with_name("operator_kinds.json").read_text(encoding="utf-8"))


def problems(document, version):
    if document["apiVersion"].startswith("monitoring.coreos.com/"):
        schema = {"$ref": f"#/$defs/{document['kind']}", "$defs": OPERATOR["$defs"]}
        return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    return []


def main():
    code = 0
    for path in sys.argv[2:]:
        for document in yaml.safe_load_all(Path(path).read_text(encoding="utf-8")):
            wrong = problems(document, sys.argv[1])
            print(document["kind"], *wrong)
            code = code or int(bool(wrong))
    return code


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The shipped files follow the shipped schemas, and the schemas refuse what the program refuses.

usage: schemas_test.py PROJECT_ROOT
Exit code 77 means skipped: python3-jsonschema is not installed.
"""

import copy
import json
import pathlib
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: install python3-jsonschema to run this test")
    sys.exit(77)

# Each schema, and the files that it is for.
FILES_OF_SCHEMA = {
    "cluster.schema.json": ["clusters/*.json", "clusters/gpus/*.json"],
    "model.schema.json": ["*.json"],
}

# Slips that people make, as changes to a GPU card: each must be refused.
SLIPS = {
    "an unknown key": lambda card: card.update(memmory=card["memory"]),
    "a missing key": lambda card: card.pop("context"),
    "a figure without its source": lambda card: card["memory"].pop("source"),
    "an empty source": lambda card: card["memory"].update(source=""),
    "an unknown provenance": lambda card: card["memory"].update(provenance="guessed"),
    "a bare figure": lambda card: card.update(memory="16GiB"),
    "a size without a unit": lambda card: card["memory"].update(value="16"),
    "a size as a number": lambda card: card["memory"].update(value=16),
    "a size in bits": lambda card: card["memory"].update(value="16Gb"),
    "a negative size": lambda card: card["memory"].update(value="-16GiB"),
    "a bandwidth in bits": lambda card: card["memory_bandwidth"].update(value="400Gbps"),
    "an unknown link": lambda card: card["intra_node"].update(kind="pci"),
    "a share above one": lambda card: card["achievable_compute"].update(value=80),
    "another format version": lambda card: card.update(format_version="9.0"),
}


def validator_of(schema_path):
    schema = json.loads(schema_path.read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def problems_of(path, validator):
    document = json.loads(path.read_text(encoding="utf-8"))
    for error in validator.iter_errors(document):
        pointer = "".join(f"/{step}" for step in error.absolute_path)
        yield f"{path}: {pointer}: {error.message[:200]}"


def figures_of(value):
    """Every {value, provenance, source} of a document."""
    if isinstance(value, dict):
        if "provenance" in value:
            yield value
        for member in value.values():
            yield from figures_of(member)
    elif isinstance(value, list):
        for element in value:
            yield from figures_of(element)


def main(root):
    specs = root / "model_specs"
    problems = []
    for schema_path in sorted((specs / "schemas").glob("*.schema.json")):
        validator = validator_of(schema_path)
        count = 0
        for pattern in FILES_OF_SCHEMA.get(schema_path.name, []):
            for path in sorted(specs.glob(pattern)):
                count += 1
                problems += problems_of(path, validator)
        print(f"{schema_path.name}: {count} files")
        if schema_path.name in FILES_OF_SCHEMA and count == 0:
            problems.append(f"{schema_path.name}: no file that it is for was found")

    cards = sorted((specs / "clusters" / "gpus").glob("*.json"))
    validator = validator_of(specs / "schemas" / "cluster.schema.json")
    for path in cards + sorted((specs / "clusters").glob("*.json")):
        for figure in figures_of(json.loads(path.read_text(encoding="utf-8"))):
            if figure["provenance"] == "given":
                problems.append(f"{path}: only a user gives figures, a shipped file does not")
    for slip, make in SLIPS.items():
        card = copy.deepcopy(json.loads(cards[0].read_text(encoding="utf-8")))
        make(card)
        if validator.is_valid(card):
            problems.append(f"cluster.schema.json accepts {slip}")

    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))

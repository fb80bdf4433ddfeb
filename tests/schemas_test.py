#!/usr/bin/env python3
"""The shipped files follow the shipped schemas, which the program printed, and the schemas refuse what the program refuses.

usage: schemas_test.py PROJECT_ROOT BINARY
FSDP_UPDATE_GOLDEN=1 writes down the schemas that the program prints.
Exit code 77 means skipped: python3-jsonschema is not installed.
"""

import copy
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: install python3-jsonschema to run this test")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parent / "command"))
import cli_rehearse_test  # noqa: E402  (it makes reports of rehearsals without PyTorch)

# Those that the program makes from what its readers go by.
GENERATED = ["model", "cluster", "measurements", "plan", "report"]

# Each schema, and the files that it is for.
FILES_OF_SCHEMA = {
    "cluster.schema.json": ["clusters/*.json", "clusters/gpus/*.json"],
    "measurements.schema.json": ["clusters/measured/*.json"],
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
    others = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in schema_path.parent.glob("*.schema.json")}
    return jsonschema.Draft7Validator(schema, resolver=jsonschema.RefResolver(schema_path.name, schema, store=others))


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


# ---- Files with one change that was drawn: the schema and the program agree.

DRAWN = 400
VALUES = [None, True, False, "x", "", "layer.", "batch", -1, 0, 1.5, 7, [], {}, ["x"], [""], {"x": 1}]

# Refusals whose reason stands at one place of the file, so that a schema can say it.
SAYABLE = re.compile(
    r"Unknown key|\"[^\"]*\" is missing\.|Expected |is out of range|Unknown (?!recipe|GPU)|has a name\.|There is no (module|op)\.|"
    r"The module has (neither|both)|is listed twice|has no momentum|The first op does not name|is not (the name of a module|a repetition)|"
    r"There is no (name|source)\.|(has no|is not a) unit|counts bits|is negative|is zero|is empty where|is not a (size|bandwidth|rate|time)|"
    r"is not a compute capability|This is format|The list is empty|has no option|cannot be the name of a dimension|The op runs in the entry's own module|after the root's forward")


def places_of(value, path=()):
    """Every value below the root with its path."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key), inner
        yield from places_of(inner, (*path, key))


def with_a_change(document, draw):
    """A copy in which one thing is left out, added, written twice or something else."""
    document = copy.deepcopy(document)
    # Whoever reads a report leaves the plan in it alone: that of a newer program has keys of its own.
    places = [place for place in places_of(document) if place[0][0] != "plan" or len(place[0]) == 1]
    path, value = draw.choice(places)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    change = draw.choice(["remove", "replace", "unknown", "elsewhere", "twice"])
    if change == "remove":
        del parent[path[-1]]
    elif change == "unknown" and isinstance(value, dict):
        value["unknown_key"] = 1
    elif change == "elsewhere" and isinstance(parent, dict):
        names = sorted({place[-1] for place, _ in places if isinstance(place[-1], str)})
        parent[draw.choice(names)] = draw.choice([*VALUES, value])
    elif change == "twice" and isinstance(value, list) and value:
        value.append(copy.deepcopy(value[0]))
    else:
        parent[path[-1]] = draw.choice(VALUES)
    return document, f"{change} at /{'/'.join(map(str, path))}"


def problems_of_drawn(name, files, words, validator, binary, root):
    """What the schema refuses the program refuses, and the other way round where a schema can say it."""
    draw = random.Random(name)
    documents = [whole(path) for path in files]
    refused_by_both = accepted_by_both = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "drawn.json"
        for number in range(DRAWN):
            document, change = with_a_change(documents[number % len(documents)], draw)
            path.write_text(json.dumps(document), encoding="utf-8")
            said = subprocess.run([binary, *[word.replace("FILE", str(path)) for word in words]], capture_output=True, text=True,
                                  timeout=600, env={**os.environ, "FSDP_PLAN_MODEL_SPECS": str(root / "model_specs")})
            errors = [error.message[:150] for error in itertools.islice(validator.iter_errors(document), 1)]
            file = f"{files[number % len(files)].name}, {change}"
            if said.returncode not in (0, 1, 2):
                yield f"{file}: exit {said.returncode}: {said.stderr[-300:]}"
            is_refused = said.returncode == 2
            refused_by_both += is_refused and bool(errors)
            accepted_by_both += not is_refused and not errors
            if errors and not is_refused:
                yield f"{file}: the schema of {name} refuses what the program takes: {errors[0]}"
            lines = [line for line in said.stderr.splitlines() if "PYTORCH_ALLOC_CONF" not in line]  # A format of its own.
            if is_refused and not errors and SAYABLE.search("\n".join(lines)):
                yield f"{file}: the schema of {name} takes what the program refuses: {said.stderr[:300]}"
    print(f"{name}: of {DRAWN} drawn files both refuse {refused_by_both} and both take {accepted_by_both}")
    if min(refused_by_both, accepted_by_both) < DRAWN // 20:
        yield f"{name}: the drawn files show too little"


def whole(path):
    """A file; a cluster with the card of its GPU inside."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if document.get("kind") == "cluster":
        cards = [json.loads(card.read_text(encoding="utf-8")) for card in sorted(path.parent.glob("gpus/*.json"))]
        document["gpu"] = next(card for card in cards if document["gpu"] in (card["name"], *card["aliases"]))
    return document


def plans_of(binary, root, folder):
    """Plans that the command writes, with much of what a plan may say."""
    wishes = {"mlp": "--gpus 2 --gpu T4", "resnet18": "--gpus 2 --gpu A100 --offload yes",
              "llama3_2_1b": "--gpus 8 --gpu H100 --checkpoint selective --optimizer sgd",
              "gpt2": "--gpus 4 --gpu H200 --shard 2 --flavor torchtitan"}
    for model, words in wishes.items():
        done = subprocess.run([binary, model, *words.split(), "-o", str(folder / f"{model}.json")], capture_output=True, text=True,
                              timeout=600, env={**os.environ, "FSDP_PLAN_MODEL_SPECS": str(root / "model_specs")})
        assert (folder / f"{model}.json").is_file(), done.stderr
    return sorted(folder.glob("*.json"))


def short(value):
    """With at most two elements of each list, so that a change is drawn at every kind of place."""
    if isinstance(value, dict):
        return {key: short(inner) for key, inner in value.items()}
    return [short(inner) for inner in value[:2]] if isinstance(value, list) else value


def reports_of(binary, root, plans, folder):
    """Reports that the command prints, of everything that it makes reports of."""
    environment = {**os.environ, "FSDP_PLAN_MODEL_SPECS": str(root / "model_specs")}
    made = {"plan": ["gpt2", "--gpus", "4", "--gpu", "H200", "--mem", "6G"],
            **{verb: [verb, str(plan)] for verb, plan in zip(("simulate", "explain"), plans, strict=False)}}
    reports = {name: subprocess.run([binary, *words, "--json"], capture_output=True, text=True, timeout=600, env=environment).stdout
               for name, words in made.items()}
    (folder / "rehearsed").mkdir()
    rehearsals = cli_rehearse_test.Tester(root, binary, folder / "rehearsed")
    runs = {"fits": [], "oom": [], "timing": ["--compare-with", str(folder / "plan.json")], "fails_on_rank_2": ["--gpus", "4", "--rank", "all"],
            "batch": ["--mem", "20G", "--find-batch", "--batch-size {}"]}
    (folder / "plan.json").write_text(reports["plan"], encoding="utf-8")
    for mode, words in runs.items():
        reports[mode] = rehearsals.rehearse(mode, "--allow-writes", *words, "--json")[1]
    shutil.rmtree(rehearsals.notes)
    for name, text in reports.items():
        assert text, f"There is no report of {name}. {rehearsals.problems}"
        report = short(json.loads(text))
        if name == "simulate":  # As fsdp-exec and execute add to theirs, which take LibTorch to run.
            step = {"step": 1, "mean_of": 1, "loss": 2.5, "gradient_norm": None, "learning_rate": 1e-4, "wall_seconds": 0.5, "cpu_seconds": 1.5,
                    "live_peak_bytes": 10, "allocated_peak_bytes": 20, "reserved_peak_bytes": 30, "segments": 2, "device_bytes": 40}
            report.update(steps=[step], evaluation={"loss": 2.5, "live_peak_bytes": 10}, assumptions=["One."])
        (folder / f"{name}.json").write_text(json.dumps(report), encoding="utf-8")
    return sorted(folder.glob("*.json"))


def problems_of_generated(schemas, binary):
    """The schemas next to the specs are those that the program prints."""
    for name in GENERATED:
        path = schemas / f"{name}.schema.json"
        printed = subprocess.run([binary, "schema", name], capture_output=True, check=True, timeout=600).stdout
        if os.environ.get("FSDP_UPDATE_GOLDEN"):
            path.write_bytes(printed)
        if path.read_bytes() != printed:
            yield f"{path} is not what `fsdp-plan schema {name}` prints; FSDP_UPDATE_GOLDEN=1 writes it down."


def main(root, binary):
    specs = root / "model_specs"
    problems = list(problems_of_generated(specs / "schemas", binary))
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

    model = validator_of(specs / "schemas" / "model.schema.json")
    problems += problems_of_drawn("model", sorted(specs.glob("*.json")), ("models", "FILE", "--expanded"), model, binary, root)

    problems += problems_of_drawn("cluster", sorted(specs.glob("clusters/*.json")), ("mlp", "--cluster", "FILE"), validator, binary, root)

    with tempfile.TemporaryDirectory() as folder:
        plans = plans_of(binary, root, pathlib.Path(folder))
        validator = validator_of(specs / "schemas" / "plan.schema.json")
        problems += [problem for path in plans for problem in problems_of(path, validator)]
        problems += problems_of_drawn("plan", plans, ("simulate", "FILE"), validator, binary, root)

        (pathlib.Path(folder) / "reports").mkdir()
        reports = reports_of(binary, root, plans, pathlib.Path(folder) / "reports")
        validator = validator_of(specs / "schemas" / "report.schema.json")
        problems += [problem for path in reports for problem in problems_of(path, validator)]
        problems += problems_of_drawn("report", reports, ("compare", "FILE", str(reports[0])), validator, binary, root)

    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))

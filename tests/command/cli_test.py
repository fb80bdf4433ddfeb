#!/usr/bin/env python3
"""The fsdp-plan command, run as its users run it.

usage: cli_test.py PROJECT_ROOT BINARY

Transcripts and screens are compared with tests/golden/cli/. After a change that is meant, run the test with
FSDP_UPDATE_GOLDEN=1 and read the diff.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    jsonschema = None

sys.dont_write_bytecode = True
from mistakes import BAD_COMMANDS, BAD_FILES  # noqa: E402

HEADLINE = "qwen3_tts --gpus 4 --mem 16G"
LIMIT_SECONDS = 900  # However busy a machine is, only what hangs takes as long.

SCREENS = {
    "fits": HEADLINE,
    "small": "qwen3_tts --gpus 4 --mem 8G",
    "no": "qwen3_tts --gpus 4 --mem 1800M",
    "machines": "qwen3_tts --gpu L4,A10G --gpus 1,4 --shard 4 --objective cost --price L4=0.8,A10G=1.2",
    "explain": "explain plan.json",
    "simulate": "simulate plan.json",
    "verbose": "mlp --gpus 4 --mem 16G --verbose",
}
WIDTHS = (60, 80, 120)


# What is said of a search that takes more than two seconds, as any may on a busy machine.
PROGRESS = re.compile(r"^(.*: )?(searching [\d,]+ plans?.*|pricing changes|(batch|sequence|micro-batch|length) [\d,]+)\n", re.MULTILINE)


class Tester:
    def __init__(self, root, binary, folder):
        self.golden = root / "tests" / "golden" / "cli"
        self.root = root
        self.binary = binary
        self.folder = folder
        self.problems = []
        self.library = root / "model_specs"

    def run(self, words, width=80, stdin=None, **environment):
        """Runs the command with its streams in pipes; gives exit code, standard output and standard error."""
        clean = {"PATH": "/usr/bin:/bin", "COLUMNS": str(width), "FSDP_PLAN_MODEL_SPECS": str(self.library)}
        words = shlex.split(words) if isinstance(words, str) else words
        done = subprocess.run([self.binary, *words], cwd=self.folder, env={**clean, **environment},
                              input=None if stdin is None else stdin.encode(), capture_output=True,
                              timeout=LIMIT_SECONDS, check=False)
        return done.returncode, done.stdout.decode(), PROGRESS.sub("", done.stderr.decode())

    def check(self, good, what):
        if not good:
            self.problems.append(what)

    def compare(self, name, text):
        text = text.replace(str(self.library), "<library>")
        path = self.golden / name
        if os.environ.get("FSDP_UPDATE_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file():
            self.problems.append(f"{path} is missing: run with FSDP_UPDATE_GOLDEN=1.")
        elif path.read_text(encoding="utf-8") != text:
            expected = path.read_text(encoding="utf-8").splitlines()
            found = text.splitlines()
            line = next((i for i, pair in enumerate(zip(expected, found)) if pair[0] != pair[1]),
                        min(len(expected), len(found)))
            self.problems.append(f"{path}:{line + 1} differs.\n  expected: {(expected + ['(end)'])[line]}"
                                 f"\n  found:    {(found + ['(end)'])[line]}")


def write_bad_files(tester):
    (tester.folder / "folder").mkdir()
    for name, text in BAD_FILES.items():
        (tester.folder / name).write_text(text, encoding="utf-8")
    spec = json.loads((tester.library / "qwen3_tts.json").read_text(encoding="utf-8"))
    tied = {"talker.codec_head.weight": "talker.model.codec_embedding.weight",
            "talker.model.codec_embedding.weight": "talker.codec_head.weight"}
    (tester.folder / "ties.json").write_text(json.dumps({**spec, "tied": tied}), encoding="utf-8")
    (tester.folder / "keys.json").write_text(json.dumps({**spec, "modulse": []}), encoding="utf-8")
    plan = (tester.folder / "plan.json").read_text(encoding="utf-8")
    content = json.loads(plan)
    fingerprint = content["model"]["fingerprint"]
    (tester.folder / "other_model.json").write_text(plan.replace(fingerprint, "0" * 16), encoding="utf-8")
    for name, member in (("flash_fp32", {"runtime": {"implementations": {"attention": "flash"}}, "parameter_dtype": "float32",
                                         "mixed_precision": {}}),
                         ("fused_sgd", {"optimizer": {"kind": "sgd", "implementation": "fused"}}),
                         ("output_dtype", {"mixed_precision": {"param_dtype": "bfloat16", "output_dtype": "float32"}})):
        (tester.folder / f"{name}.json").write_text(json.dumps({**content, **member}), encoding="utf-8")
    content["units"].insert(0, {"modules": ["talker.codec_hed"]})
    (tester.folder / "other_unit.json").write_text(json.dumps(content), encoding="utf-8")


def test_bad_input_is_explained(tester):
    """Every mistake is explained on the error stream, ends with 2, and leaves the folder as it was."""
    write_bad_files(tester)
    before = {path: path.read_bytes() for path in tester.folder.rglob("*") if path.is_file()}
    transcript = ""
    for words in BAD_COMMANDS.split("\n")[1:-1]:
        code, out, err = tester.run(words)
        transcript += f"$ fsdp-plan {words}\n{err}\n"
        tester.check(code == 2, f"fsdp-plan {words} ends with {code}, not with 2.")
        tester.check(out == "", f"fsdp-plan {words} prints a result.")
        tester.check(err != "", f"fsdp-plan {words} says nothing.")
    tester.compare("bad_input.txt", transcript)
    after = {path: path.read_bytes() for path in tester.folder.rglob("*") if path.is_file()}
    tester.check(before == after, f"Mistakes wrote files: {sorted(set(after) ^ set(before))}.")


def test_screens_match_at_three_widths(tester):
    """What people see, at three widths, with what is said beside it."""
    for name, words in SCREENS.items():
        for width in WIDTHS:
            code, out, err = tester.run(words, width)
            tester.compare(f"{name}_{width}.txt", f"$ fsdp-plan {words}\n{out}{err}exit code {code}\n")
    for name in ("help", "help-all"):
        code, out, _ = tester.run(f"--{name}")
        tester.compare(f"{name.replace('-', '_')}.txt", out)
        tester.check(code == 0 and max(map(len, out.splitlines())) <= 80, f"--{name} is wider than 80 columns.")
    code, out, _ = tester.run("execute --help-all")
    tester.compare("execute_help.txt", out)
    tester.check(code == 0 and max(map(len, out.splitlines())) <= 80, "The help of execute is wider than 80 columns.")


# Small and large, with and without a plan that fits, with and without a GPU's name.
BRIEF = (
    HEADLINE, "qwen3_tts --gpus 4 --mem 1800M", "mlp --gpus 4 --mem 16G", "llama3_1_8b --gpu H100 --gpus 8 --batch 2 --seq 8192",
    "llama3_1_70b --gpu H100 --gpus 8 --offload no", "gpt2_xl --gpu A10G --gpus 4", "vit_b_32 --gpu T4 --gpus 4",
    "resnet18 --gpu A100-40GB-SXM --gpus 2 --nodes 2", "simulate plan.json",
)


# Much that must be said: long names of units, host memory, the scope of a large model, a stand-in.
LONG_BRIEF = (
    "llama3_1_70b --gpu A100-80GB-SXM --gpus 8 --nodes 2", "whisper_large_v3 --gpus 4 --mem 16G", "mixtral_8x7b --gpus 4 --mem 16G",
    "qwen3_0_6b --gpus 4 --mem 16G", "llama3_1_70b --gpus 4 --mem 16G", "llama3_1_70b --gpu H100 --gpus 8",
)


def test_the_answer_is_short(tester):
    """At 80 columns; --verbose has what it leaves out."""
    for words in BRIEF + LONG_BRIEF:
        _, out, _ = tester.run(words)
        lines = out.splitlines()
        tester.check(len(lines) <= 16, f"fsdp-plan {words} takes {len(lines)} lines.")
        tester.check(all(len(line) <= 80 for line in lines), f"fsdp-plan {words} is wider than 80 columns.")
        labels = [line.split()[0] for line in lines if line[0] != " "]
        first = [label for label in labels if label != "scope"][:4]
        tester.check(first[0] in ("FITS", "FITS,", "DOES", "NO") and first[1:] == ["speed", "plan", "peak"],
                     f"fsdp-plan {words} says {labels}.")
        speed = next(line for line in lines if line.startswith("speed"))
        tester.check(" samples/s · " in speed and " · MFU " in speed, f"fsdp-plan {words} says {speed}.")
        tester.check(("scope" in labels) == ("llama3_1_70b" in words or "mixtral" in words), f"fsdp-plan {words} says {labels}.")
    _, brief, _ = tester.run(HEADLINE)
    tester.check("32 samples a step, from recipe sft" in " ".join(brief.split()), "The batch's origin is not said.")
    tester.check("No GPU named: an L4's speed and PCIe links" in brief, "The stand-in is not said.")
    _, out, _ = tester.run("qwen3_tts --gpus 4 --mem 16G --batch 2 --accumulate 4")
    tester.check("recipe" not in out, "A batch that was given comes from a recipe.")
    _, verbose, _ = tester.run(HEADLINE + " --verbose")
    labels = {line.split()[0] for line in verbose.splitlines() if line[0] != " "}
    wanted = {"FITS", "plan", "peak", "device", "live", "phases", "speed", "traffic", "issued", "time", "proof", "bounds", "why",
              "faster", "next", "front", "assume", "use"}
    tester.check(labels == wanted, f"--verbose has not {wanted - labels}, and has {labels - wanted}.")


def test_suggestions_typed_at_simulate_give_their_price(tester):
    """A suggestion of explain, typed at simulate, gives its price exactly; -o of explain writes the changed plan."""
    report = json.loads(tester.run("explain plan.json --json")[1])
    seen = set()
    for remedy in report["explain"]["remedies"]:
        option = remedy["flag"].split()[0]
        if option not in ("--optimizer-impl", "--alloc-conf", "--offload", "--activation-checkpointing"):
            continue
        code, out, err = tester.run(f"simulate plan.json {remedy['flag']} --json")
        given = json.loads(out)
        step = given["time"]["step"] - report["time"]["step"]
        memory = given["memory"]["device_peak_bytes"] - report["memory"]["device_peak_bytes"]
        tester.check(code == (0 if remedy["verdict"] == "fits" else 1), f"simulate {remedy['flag']} ends with {code}: {err}")
        tester.check(memory == remedy["delta_bytes"] and abs(step - remedy["delta_seconds"]) < 1e-12,
                     f"{remedy['flag']} gives {memory} bytes and {step} s; {remedy} was promised.")
        tester.check(given["plan"] != report["plan"] and given["plan"]["units"] == report["plan"]["units"], f"{option}")
        seen.add(option)
    tester.check(len(seen) == 4, f"explain suggests only {seen}.")
    for words in ("simulate plan.json --batch 4", "explain plan.json --wrap root", "explain plan.json --strategy NO_SHARD"):
        code, _, err = tester.run(words)
        tester.check(code == 2 and "does not take this option" in err, f"fsdp-plan {words}: {code}, {err}")


def test_key_value_caches_break_no_bound(tester):
    """The first checkpointed block turns the caches of keys and values off: a step can get shorter by it."""
    words = "qwen3_tts --gpu RTX4090 --gpus 2 --nodes 2 --mem 8G --shard 1 --reshard keep-last:8 --offload yes"
    search = json.loads(tester.run(words + " --json")[1])["search"]
    proven = not any(note.startswith("Not proven") for note in search["notes"])
    tester.check(proven and search["optimality_gap"] is not None, f"Not proven: {search['notes']}")


def test_help_fits_a_screen(tester):
    """What most people need, in the order in which they decide; --help-all has every option with every choice."""
    lines = tester.run("--help")[1].splitlines()
    tester.check(len(lines) <= 26, f"--help takes {len(lines)} lines.")
    labels = [line.split()[0] for line in lines if line[:1].isupper()]
    order = [label for label in labels if label in ("Model", "GPUs", "Trainer", "Output", "Commands")]
    tester.check(order == ["Model", "GPUs", "Trainer", "Output", "Commands"], f"--help is in the order {order}.")
    everything = tester.run("--help-all")[1]
    known = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", everything))
    said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(lines)))
    tester.check(len(said) > 15 and said <= known, f"--help names {said - known}, which --help-all does not.")
    flat = " ".join(everything[everything.index("Model and training:"):].split())
    for option, choices in re.findall(r"-l ([a-z-]+) [^\n]*?-a '([^']+)'", tester.run("completions fish")[1]):
        if f"--{option} " not in flat:
            continue
        at = flat.index(f"--{option} ")
        row = re.split(r"(?= --[a-z])", flat[at + 2:], maxsplit=1)[0]
        missing = [choice for choice in choices.split() if not re.search(rf"(?<![\w-]){re.escape(choice)}(?![\w-])", row)]
        if option != "format":  # A trace is of replays alone.
            tester.check(not missing, f"--{option} does not name {missing}: {row}")
    for command in COMMANDS:
        text = tester.run(f"{command} --help")[1]
        whole = tester.run(f"{command} --help-all")[1]
        tester.check(len(text.splitlines()) <= 50, f"{command} --help takes {len(text.splitlines())} lines.")
        tester.check(len(text.splitlines()) <= len(whole.splitlines()) + 2, f"{command} --help has more than --help-all.")


COMMANDS = ("simulate", "explain", "fit", "clock", "capture", "rehearse", "run", "measure", "execute", "calibrate", "replay", "compare",
            "export", "schema", "models", "gpus", "check", "doctor", "completions")


def test_help_names_only_options_of_the_command(tester):
    """Nobody reads about another command's options, and `help` is no model."""
    foreign = {"plan": ("rehearse also", "for a rehearsal", "replay only", "for an execution"), "simulate": ("rehears", "replay only", "execution"),
               "execute": ("Rehearsal:", "a rehearsal", "the script"), "compare": ("Rehearsal:", "a rehearsal", "plan fits"),
               "export": ("rehears", "comparison", "the --json output")}
    for command, words in foreign.items():
        code, out, _ = tester.run(f"{command} --help-all")
        options = out[out.index("\nUsage:"):]
        for word in words:
            tester.check(code == 0 and word not in options, f"The help of {command} says \"{word}\".")
    tester.check(tester.run("help")[1] == tester.run("--help")[1], "fsdp-plan help is not --help.")
    tester.check(tester.run("help replay")[1] == tester.run("replay --help")[1], "fsdp-plan help replay.")
    for option in ("--tp 2", "--peft 8", "--zero 3", "--compile", "--events timeline.json"):
        code, _, err = tester.run(f"{HEADLINE} {option}")
        tester.check(code == 2 and "Did you mean" not in err and "error:" in err, f"{option}: {err}")
        compiles = option == "--compile"
        tester.check(("fsdp-plan rehearse -- COMMAND" in err) == compiles, f"{option}: {err}")
    code, _, err2 = tester.run(f"{HEADLINE} --runtime torch.compile")
    tester.check(code == 2 and "fsdp-plan rehearse -- COMMAND" in err2, err2)
    tester.check("fsdp-plan export PLAN --to chrome" in err and not (tester.folder / "timeline.json").exists(), err)


def test_old_spellings_are_read_with_a_note(tester):
    """An option and keys of a plan that were spelled otherwise give the same answer, with a note."""
    text = (tester.folder / "plan.json").read_text(encoding="utf-8")
    old = text.replace('"initialization"', '"initialisation"').replace('"flavor"', '"flavour"').replace('"loss":', '"cross_entropy":')
    tester.check(old.count("isation") == 1 and old.count("flavour") == 1, "The plan has not the two keys.")
    (tester.folder / "old_plan.json").write_text(old, encoding="utf-8")
    _, expected, silent = tester.run("simulate plan.json --json")
    _, out, err = tester.run("simulate old_plan.json --json")
    tester.check(out == expected and silent == "", "Old keys give another answer.")
    for word, now in (("initialisation", "initialization"), ("flavour", "flavor"), ("cross_entropy", "loss")):
        tester.check(f'note: old_plan.json: The key "{word}" is now "{now}"; the next version reads only that.' in err,
                     f"An old key is taken without a word: {err}")
    (tester.folder / "both.json").write_text(text.replace('"flavor": ', '"flavour": "transformers", "flavor": '), encoding="utf-8")
    code, _, err = tester.run("simulate both.json")
    tester.check(code == 2 and "flavour" in err, f"A key stands twice, in two spellings: {err}")
    for old, now, value in (("--flavour", "--flavor", "torchtitan"), ("--cross-entropy", "--loss", "flash_attn"),
                            ("--states", "--optimizer-state-dtype", "bfloat16"),
                            ("--clip", "--clip-grad-norm", "none"), ("--checkpoint", "--activation-checkpointing", "full")):
        for words in (f"simulate plan.json {old} {value} --json", f"simulate plan.json {old}={value} --json"):
            found, wanted = tester.run(words), tester.run(words.replace(old, now))
            tester.check(found[:2] == wanted[:2] and found[0] in (0, 1) and wanted[2] == "", f"{words} gives another answer.")
            tester.check(f"note: {old} is now {now}; the next version takes only that." in found[2], found[2])
    # One old name of two options: of a rehearsal it is what the allocator did, of an execution what the device did.
    for command, now in (("rehearse", "--allocator-trace"), ("execute", "--chrome-trace")):
        for words in (f"{command} plan.json --trace no/where", f"--trace no/where {command} plan.json"):
            code, _, err = tester.run(words)
            tester.check(code == 2 and f"note: --trace is now {now}; the next" in err and "no/where" in err, f"{words}: {err}")
    clock = "clock all_gather --gpu H100 --gpus 8"
    for words, old, now in (("rehearse plan.json", "--against", "--compare-with"), (clock, "--beside", "--compare-with"),
                            ("execute plan.json", "--reduce", "--reduction"), ("execute plan.json", "--every", "--checkpoint-every"),
                            ("execute plan.json", "--keep", "--checkpoint-keep")):
        code, _, err = tester.run(f"{words} {old} no/where")
        tester.check(code == 2 and f"note: {old} is now {now}; the next" in err and f"error: {now}: " in err or "error: no/where: " in err,
                     f"{words} {old}: {err}")
    code, _, err = tester.run("execute plan.json --checkpoint full")
    tester.check(code == 2 and "--activation-checkpointing" not in err, f"The folder of checkpoints is taken for another option: {err}")


def test_exit_codes(tester):
    for words, expected in {HEADLINE: 0, "qwen3_tts --gpus 4 --mem 1800M": 1, "--version": 0, "--help": 0, "doctor": 0,
                            "models": 0, "gpus": 0, "schema plan": 0, "simulate plan.json --mem 2G": 1}.items():
        code, _, err = tester.run(words)
        tester.check(code == expected, f"fsdp-plan {words} ends with {code}, not with {expected}: {err}")


def test_plans_are_reproduced(tester):
    """A plan file gives the report that it came from, again, with nothing but the model at hand."""
    _, first, _ = tester.run(HEADLINE + " --json")
    _, second, _ = tester.run(HEADLINE + " --json")
    tester.check(first == second, "The same command gives two answers.")
    _, simulated, err = tester.run("simulate plan.json --json")
    tester.check(simulated != "", f"simulate fails: {err}")
    planned, again = json.loads(first), json.loads(simulated)
    for key in again:
        tester.check(planned[key] == again[key], f"simulate gives another {key} than plan.")
    plan = json.loads((tester.folder / "plan.json").read_text(encoding="utf-8"))
    tester.check(planned["plan"] == plan, "The report's plan is not the plan file.")
    tester.run(HEADLINE + " -o again.json")
    tester.check((tester.folder / "again.json").read_bytes() == (tester.folder / "plan.json").read_bytes(),
                 "The same command writes two plan files.")
    code, out, _ = tester.run(HEADLINE + " -o -")
    tester.check(code == 0 and json.loads(out) == plan, "-o - does not print the plan alone.")


def test_mistakes_of_a_plan_have_their_place(tester):
    """Not at an option that nobody gave, and not in the model's own file."""
    for model, expected in {
        '"dimensions": {"batch": 1.5}': 'error: bad_plan.json:2:25: /model/dimensions/batch: "batch" is 1.5.',
        '"dimensions": {"bacth": 2}': "error: bad_plan.json:2:25: /model/dimensions/bacth: The model MLP has no such dimension.",
        '"frozen": ["0.weigth"]': 'error: bad_plan.json:2:12: /model/frozen/0: The pattern "0.weigth" matches no parameter',
        '"trainable": ["2", "7"]': 'error: bad_plan.json:2:20: /model/trainable/1: The pattern "7" matches no parameter',
        '"recipe": "tuned"': 'error: bad_plan.json:2:11: /model/recipe: The model MLP has no recipe "tuned".',
        '"frozen": ["0", "2"]': "error: bad_plan.json: model: No parameter gets a gradient",
    }.items():
        (tester.folder / "bad_plan.json").write_text(
            '{"format_version": "1.0", "model": {"name": "MLP", "file": "mlp",\n' + model + '}, "mesh": {"replicate": 1, "shard": 2},'
            ' "units": [{"modules": [""]}]}', encoding="utf-8")
        code, _, err = tester.run("simulate bad_plan.json --gpus 2 --gpu T4")
        tester.check(code == 2 and expected in err, f"{model} is answered with\n{err}instead of\n{expected}")


def test_output_matches_its_schemas(tester):
    """Plan and report follow the schemas that the program prints."""
    schemas = {name: json.loads(tester.run(f"schema {name}")[1]) for name in ("model", "cluster", "plan", "report")
               if (tester.library / "schemas" / f"{name}.schema.json").is_file()}
    _, out, _ = tester.run(HEADLINE + " --json")
    _, of_machines, _ = tester.run("mlp --gpus 1,2 --mem 16G --shard 2 --price 2 --json")
    documents = [("report", json.loads(out)), ("report", json.loads(of_machines)),
                 ("plan", json.loads((tester.folder / "plan.json").read_text()))]
    if jsonschema is None:
        print("left out: install python3-jsonschema to compare output with schemas")
        return
    store = {f"{name}.schema.json": schema for name, schema in schemas.items()}
    for name, document in documents:
        resolver = jsonschema.RefResolver(f"{name}.schema.json", schemas[name], store=store)
        validator = jsonschema.Draft7Validator(schemas[name], resolver=resolver)
        for error in list(validator.iter_errors(document))[:3]:
            tester.problems.append(f"{name}: /{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}")
        document["plann" if name == "plan" else "kind"] = 1
        tester.check(not validator.is_valid(document), f"The schema of {name} accepts a mistake.")


def test_report_adds_up(tester):
    report = json.loads(tester.run(HEADLINE + " --json")[1])
    memory, search = report["memory"], report["search"]
    tester.check(sum(term["bytes"] for term in memory["device_terms"]) == memory["device_peak_bytes"],
                 "The device terms do not add up to the device peak.")
    tester.check(search["evaluated"] + sum(search["ruled_out"].values()) == search["space"],
                 "The proof does not add up.")
    tester.check(memory["device_peak_bytes"] + memory["margin_bytes"] <= memory["budget_bytes"],
                 "What fits is larger than the budget.")
    for kind, total in report["traffic"]["totals"].items():
        each = [c for c in report["traffic"]["collectives"] if c["kind"] == kind]
        tester.check(len(each) == total["count"] and sum(c["payload_bytes"] for c in each) == total["payload_bytes"],
                     f"The {kind}s do not add up to their totals.")


def test_formats(tester):
    _, table, _ = tester.run(HEADLINE)
    tester.check("\x1b" not in table, "A pipe gets colors.")
    for environment, colored in (({"CLICOLOR_FORCE": "1"}, True), ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False)):
        _, out, _ = tester.run(HEADLINE, **environment)
        tester.check(("\x1b[1;32m" in out) == colored, f"Colors are wrong with {environment}.")
    _, out, _ = tester.run(HEADLINE + " --color always", NO_COLOR="1")
    tester.check("\x1b[1;32m" in out, "--color always does not win over NO_COLOR.")
    _, csv, _ = tester.run(HEADLINE + " --format csv")
    report = json.loads(tester.run(HEADLINE + " --json")[1])
    head, row = [line.split(",") for line in csv.splitlines()[:2]]
    summary = dict(zip(head, row))
    tester.check(summary["device_peak_bytes"] == str(report["memory"]["device_peak_bytes"]), "CSV differs from JSON.")
    tester.check(all(line == "" or "," in line for line in csv.splitlines()), "CSV holds prose.")
    _, markdown, _ = tester.run(HEADLINE + " --format md")
    tester.check(markdown.startswith("**FITS**") and "**plan**" in markdown, "Markdown is not the answer.")
    _, markdown, _ = tester.run(HEADLINE + " --format md --verbose")
    tester.check("| all\\_gather |" in markdown, "Markdown has no table.")
    _, quiet, err = tester.run(HEADLINE + "B --quiet")
    tester.check(quiet.splitlines()[0].split()[0] in {"FITS", "DOES"} and err == "", "--quiet says too much.")
    _, _, err = tester.run("qwen3_tts --gpus 4 --mem 16GB")
    tester.check("note: --mem 16GB is 16,000,000,000 bytes, 14.9 GiB. Write G for powers of two." in err,
                 f"A decimal size is taken without a word: {err}")


def test_equal_options_give_equal_answers(tester):
    """Every way to say the same gives the same."""
    _, expected, _ = tester.run("qwen3_tts --gpus 4 --mem 16G --nodes 1 --json")
    for words in ("--json qwen3_tts --mem=16GiB --nproc-per-node 4 --nnodes 1", "plan qwen3_tts --gpus=4 --mem 16g --json",
                  "qwen3_tts.json --gpus 4 --memory 16384MiB --format json"):
        _, out, err = tester.run(words)
        same = out.replace('"file": "qwen3_tts.json"', '"file": "qwen3_tts"') == expected
        tester.check(same, f"fsdp-plan {words} gives another answer. {err}")
    code, out, _ = tester.run("qwen3_tts --gpus 4 --mem 16G --strategy FULL_SHARD --activation-checkpointing full --wrap blocks "
                              "--offload no --precision mixed --clip-grad-norm none --json")
    plan = json.loads(out)["plan"]
    tester.check(code in (0, 1) and plan["mesh"] == {"replicate": 1, "shard": 4}, "FULL_SHARD does not shard over all.")
    tester.check(plan["mixed_precision"]["param_dtype"] == "bfloat16" and plan["parameter_dtype"] == "float32",
                 "--precision mixed is not fp32 weights and bf16 compute.")
    tester.check(plan["optimizer"]["clip_grad_norm"] is None and not plan["cpu_offload"], "--clip-grad-norm none or --offload no.")
    tester.check(all(entry["mode"] == "full" for entry in plan["activation_checkpointing"]["modules"]), "--activation-checkpointing.")


def test_auto_wrap_policies(tester):
    """--explain says what one of PyTorch's policies found, as text and as JSON; what it cannot say is refused."""
    words = "llama3_1_8b --gpu H100 --gpus 8 --strategy FULL_SHARD --activation-checkpointing full"
    for runtimes in ("", "--runtime all"):
        code, out, err = tester.run(f"{words} --wrap size:100M --explain {runtimes}", width=120)
        tester.check(code == 0 and "model.layers.{0..31}.mlp " in out and "does not weigh" in out,
                     f"--explain {runtimes}: {code}, {out}{err}")
    code, out, _ = tester.run(f"{words} --wrap size:100M", width=120)
    tester.check(code == 0 and "its class is excluded" not in out, f"Nobody asked: {out}")
    for wrap, units in (("size:100M", 36), ("class:LlamaDecoderLayer,Embedding", 34)):
        report = json.loads(tester.run(f"{words} --wrap {wrap} --json")[1])
        said = report["explain"]["wrap"]
        counted = sum(row["count"] for row in said["visited"] if row["unit"])
        tester.check(said["policy"] == wrap and counted == units, f"{wrap}: {said}")
    tester.check(said["in_root"] == ["model.norm", "lm_head"] and said["root_elements"] == 4096 + 128_256 * 4096, f"{said}")
    report = json.loads(tester.run(f"{words} --wrap blocks --json")[1])
    tester.check("wrap" not in report["explain"], "Blocks are no policy.")
    for refused, why in (("--explain", "none does here"), ("--explain --runtime all", "none does here"),
                         ("--wrap size:1M --explain --quiet", "--quiet leaves out"),
                         ("--wrap size:1M --wrap-ends yes", "already defines the units"),
                         ("--wrap model.layers.* --wrap-ends no", "already defines the units"),
                         ("--wrap class:LlamaDecodrLayer", 'Did you mean "LlamaDecoderLayer"?')):
        code, out, err = tester.run(f"{words} {refused}")
        tester.check(code == 2 and not out and why in err, f"{refused}: {code}, {err}")


def test_tight_plan_runs(tester):
    """Below what some plan has room in the answer is one that runs: exit 0, and 1 with --strict."""
    words = "gpt2_large --gpus 2 --mem 1620MiB"
    code, out, _ = tester.run(f"{words} --quiet", width=400)
    tester.check(code == 0 and out.startswith("FITS, TIGHT  would take 1.") and "empties its cache 2 times a step" in out, f"{words}: {code}, {out}")
    code, out, _ = tester.run(f"{words} --strict --json -o tight.json")
    report = json.loads(out)
    memory = report["memory"]
    tester.check(code == 1 and report["verdict"] == "fits" and memory["tight"] == "cache_flushes", f"--strict: {code}, {report['verdict']}")
    tester.check(memory["device_peak_bytes"] > memory["budget_bytes"] and memory["step_cache_flushes"] == 2 and 0 < memory["cache_flush_time"] < 0.1,
                 f"What emptying the cache takes: {memory['step_cache_flushes']}, {memory['cache_flush_time']}")  # fmt: skip
    codes = [tester.run(f"simulate tight.json --mem {size} {strict} --quiet")[0]
             for size in ("1620MiB", "900MiB", "8G") for strict in ("", "--strict")]
    tester.check(codes == [0, 1, 1, 1, 0, 0], f"simulate ends with {codes}.")


def test_report_is_of_the_requested_rank(tester):
    """simulate and plan report of the rank that is asked for, and say so."""
    for command in ("simulate plan.json", "qwen3_tts --gpus 4 --mem 16G"):
        code, out, _ = tester.run(f"{command} --rank 3 --json")
        said = "Memory and verdict are those of rank 3" in out
        tester.check(code == 0 and said, f"{command} does not report of rank 3.")
        code, out, err = tester.run(f"{command} --rank 4 --json")
        tester.check(code == 2 and not out and "There is no rank 4 in a world of 4." in err, f"{command}: {err}")


def test_report_is_of_the_rank_that_needs_most(tester):
    """Without --rank the report is of the rank that needs the most, and the verdict with it."""
    for words, rank in (("qwen3_1_7b --gpu 'RTX 3090' --gpus 3 --mem 64G --batch 3 --optimizer sgd --accumulate 2", 2),):
        worst, last, first = (json.loads(tester.run(f"{words} {which} --json")[1])["memory"]
                              for which in ("", f"--rank {rank}", "--rank 0"))
        tester.check(worst["rank"] == rank, f"{words}: the report is of rank {worst['rank']}, not of {rank}.")
        tester.check(worst["device_peak_bytes"] == last["device_peak_bytes"] > first["device_peak_bytes"],
                     f"{words}: rank {rank} needs no more than rank 0.")


def test_offload_must_fit_host_memory(tester):
    """What is offloaded must fit the node, and where its memory is not known the answer says what it needs."""
    words = "llama3_1_70b --gpu H100 --gpus 8 --nodes 2 --offload yes"
    code, out, _ = tester.run(f"{words} --host-mem 64G", width=400)
    tester.check(code == 1 and "GiB of host memory per node" in out and "short of 64.0 GiB" in out,
                 f"64 GiB hold it:\n{out}")
    remedies = json.loads(tester.run(f"{words} --host-mem 64G --json")[1])["explain"]["remedies"]
    tester.check(any(each["flag"] == "--host-mem 768G" and each["verdict"] == "fits" for each in remedies),
                 f"No node is offered that holds it: {remedies}")
    code, out, _ = tester.run(f"{words} --host-mem 768G --quiet")
    tester.check(code == 0, f"768 GiB do not hold it:\n{out}")
    code, out, _ = tester.run(f"{words} --verbose", width=400)
    busy = re.search(r"compute ([0-9.]+) s on the GPU, then ([0-9.]+) s of optimizer on the CPU", out)
    step = re.search(r"step ([0-9.]+) s", out)
    tester.check(bool(busy and step) and float(busy[1]) + float(busy[2]) <= float(step[1]) * 1.01 and float(busy[2]) > 1,
                 f"The GPU is said to be busy while it waits for the CPU: {busy and busy[0]}")
    code, out, _ = tester.run(words, width=400)
    tester.check(code == 0 and "of host memory per node (not checked: give --host-mem)" in out, out)
    host = json.loads(tester.run(f"{words} --json")[1])["memory"]["host"]
    # 16 bytes of each parameter, over two nodes, and no more than powers of two add to the half of it that is pinned.
    least = 16 * 70_553_706_496 // 2
    tester.check(least <= host["needed_bytes"] <= least * 1.5, f"{host['needed_bytes']} is not {least} and a little.")
    tester.check(sum(term["bytes"] for term in host["terms"]) == host["needed_bytes"] and "budget_bytes" not in host,
                 f"The terms do not add up: {host}")


def test_common_spellings_are_accepted(tester):
    """Names of the Hugging Face hub, lengths in k, help, pipes and links."""
    for name, model in (("Qwen/Qwen3-8B", "qwen3_8b"), ("meta-llama/Llama-3.1-70B-Instruct", "llama3_1_70b"),
                        ("meta-llama/Meta-Llama-3.1-8B", "llama3_1_8b"), ("mistralai/Mistral-7B-v0.3", "mistral_7b_v0_3")):
        named, shipped = (tester.run(f"models {each} --expanded")[1] for each in (name, model))
        tester.check(named == shipped != "", f"{name} is not {model}.")
    words = "gpt2 --gpu T4 --gpus 1 --activation-checkpointing full --json --seq"
    tester.check(tester.run(f"{words} 1k") == tester.run(f"{words} 1024"), "1k is not 1024.")
    everything = tester.run("--help")
    tester.check(tester.run("help") == everything and everything[0] == 0, "help is not --help.")
    tester.check(tester.run("help replay") == tester.run("replay --help"), "help replay is not replay --help.")
    out = tester.run("gpt2 --gpu A100 --gpus 1 --json")[1]
    tester.check("--gpu A100 is taken to be A100 80GB SXM, not A100 40GB PCIe" in out, "A100 is silently one of four.")
    tester.check("is taken to be" not in tester.run("gpt2 --gpu 'A100 80GB SXM' --gpus 1 --json")[1], "One of one.")
    doctor = tester.run("doctor")[1]
    for part in ("stub GPU", "Python with torch", "window"):
        tester.check(part in doctor, f"The doctor does not know {part}.")
    os.mkfifo(tester.folder / "pipe")
    code, _, err = tester.run("simulate pipe")
    tester.check(code == 2 and "without a writer" in err, f"A pipe without a writer: {err}")
    (tester.folder / "link.json").symlink_to("gone.json")
    tester.check('It is a link to "gone.json"' in tester.run("simulate link.json")[2], "A dangling link.")
    (tester.folder / "pipe").unlink()
    done = subprocess.run(["bash", "-c", f"{tester.binary} simulate <(cat plan.json) --quiet"], cwd=tester.folder,
                          env={"PATH": "/usr/bin:/bin", "FSDP_PLAN_MODEL_SPECS": str(tester.library)},
                          capture_output=True, text=True, timeout=60, check=False)
    tester.check(done.returncode == 0, f"Process substitution: {done.stderr}")


def test_suggested_memory_holds_the_plan(tester):
    """More memory is that of a card that there is, and it holds the plan at the price that was said."""
    cards = json.loads(tester.run("gpus --json")[1])["gpus"]
    sizes = {card["gpu"]: int(card["memory_bytes"]) for card in cards}
    for words, begin in (("--gpus 2 --mem 24G", "--gpu "), ("--gpu L4 --gpus 2", "--gpu "),
                         ("--gpu L4 --gpus 2 --mem 16G", "--gpu "), ("--cluster AWS-g6.12xlarge --batch 1", "--cluster ")):
        question = f"llama3_1_8b {words} --offload no"
        code, out, _ = tester.run(f"{question} --json")
        report = json.loads(out)
        found = [each for each in report["explain"]["remedies"] if each["flag"].startswith(begin)]
        tester.check(code == 1 and len(found) == 1, f"{question}: not one larger GPU: {[each['flag'] for each in found]}.")
        if len(found) != 1:
            continue
        flags = found[0]["flag"].split()
        # The options of a suggestion stand in the place of the same ones.
        given = words.split()
        for option in flags[::2]:
            if option in given:
                at = given.index(option)
                del given[at:at + 2]
        code, out, _ = tester.run(["llama3_1_8b", *given, "--offload", "no", *flags, "--json"])
        tester.check(code == 0, f"{flags} was said to do for {question}:\n{out[:300]}")
        answer = json.loads(out)
        promised = report["time"]["step"] + found[0]["delta_seconds"]
        tester.check(answer["time"]["step"] <= promised * 1.005, f"{flags}: {answer['time']['step']} s, not {promised}.")
        budget = int(answer["memory"]["budget_bytes"])
        is_card = budget == sizes.get(answer["cluster"]["gpu"])
        is_size = any(size // 2**30 == budget // 2**30 for size in sizes.values())
        tester.check(is_card if "--mem" not in flags else is_size, f"{flags}: no card has {budget} bytes.")


def test_completions(tester):
    for shell in ("bash", "zsh", "fish"):
        code, out, _ = tester.run(f"completions {shell}")
        tester.check(code == 0 and "nproc-per-node" in out, f"The completions of {shell} lack options.")
    script = tester.folder / "completions.bash"
    script.write_text(tester.run("completions bash")[1], encoding="utf-8")
    ask = f"source {script}; COMP_WORDS=(fsdp-plan --precision ''); COMP_CWORD=2; _fsdp_plan; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False)
    tester.check(done.stdout.split()[:2] == ["bf16", "mixed"], f"bash completes --precision with {done.stdout!r}.")


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        code, _, err = tester.run(HEADLINE + " -o plan.json")
        if code != 0:
            print(f"The headline command ends with {code}: {err}")
            return 1
        tests = [value for name, value in globals().items() if name.startswith("test_")]
        for test in tests:
            known = len(tester.problems)
            test(tester)
            print(f"{'ok  ' if len(tester.problems) == known else 'FAIL'} {test.__name__}")
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))

#!/usr/bin/env python3
"""The fsdp-plan command, run as its users run it.

usage: cli_test.py PROJECT_ROOT BINARY

Transcripts and screens are compared with tests/golden/cli/. After a change that is meant, run the test with
FSDP_UPDATE_GOLDEN=1 and read the diff.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    jsonschema = None

HEADLINE = "qwen3_tts --gpus 4 --mem 16G"

# Files that somebody could hand to the program by mistake.
BAD_FILES = {
    "empty.json": "",
    "cut.json": '{"format_version": "1.0", "name": ',
    "types.json": '{"format_version": "1.0", "name": 3, "modules": {}}',
    "nan.json": '{"format_version": "1.0", "dimensions": {"batch": NaN}}',
    "list.json": "[1, 2]\n",
    "binary.json": "\x00\x01\x02",
    "plan_types.json": '{"format_version": "1.0", "model": "m", "mesh": {"replicate": 0, "shard": 9223372036854775808},'
                       ' "units": [{"modules": ["a.{3..1}"]}], "optimiser": {}}',
    "plan_version.json": '{"format_version": "7.0", "model": {"name": "m", "file": "qwen3_tts"},'
                         ' "mesh": {"replicate": 1, "shard": 1}, "units": [{"modules": [""]}]}',
}

# A shell's worth of mistakes: all end with exit code 2, and leave no file behind.
BAD_COMMANDS = """

missing.json --gpus 4 --mem 16G
folder --gpus 4 --mem 16G
empty.json --gpus 4 --mem 16G
cut.json --gpus 4 --mem 16G -o out.json
types.json --gpus 4 --mem 16G
nan.json --gpus 4 --mem 16G
list.json --gpus 4 --mem 16G
binary.json --gpus 4 --mem 16G
ties.json --gpus 4 --mem 16G
keys.json --gpus 4 --mem 16G
qwen_tts --gpus 4 --mem 16G
qwen3_tts
qwen3_tts --gpus 4
qwen3_tts --gpus 0 --mem 16G
qwen3_tts --gpus -1 --mem nanG
qwen3_tts --gpus 1.5 --mem infG
qwen3_tts --gpus 4 --mem 80
qwen3_tts --gpus 4 --mem 0G
qwen3_tts --gpus 4 --mem 9223372036854775808B
qwen3_tts --gpus 9223372036854775808 --mem 16G
qwen3_tts --gpus 4 --mem 16G --nodes 0
qwen3_tts --gpu T5 --gpus 4
qwen3_tts --cluster missing.json
qwen3_tts --cluster dgx_z100
qwen3_tts --cluster empty.json --gpu T4
qwen3_tts --gpus 4 --mem 16G --intra-link pci --network token-ring --nic-bandwidth 400Gbps
qwen3_tts --gpuss 4 --memm 16G --wrp root
qwen3_tts --mem --gpus 4
qwen3_tts --gpus
qwen3_tts extra --gpus 4 --mem 16G
--gpus 4 --mem 16G
smulate plan.json
qwen3_tts --gpus 4 --mem 16G --trainable nothing --freeze 'no.*'
--trainable 'talker.*' qwen3_tts
qwen3_tts --gpus 4 --mem 16G --set foo=3
qwen3_tts --gpus 4 --mem 16G --set batch --set =3 --set seq=nan --set frames=-1
qwen3_tts --gpus 4 --mem 16G --batch 0 --seq 9223372036854775808 --accumulate x
qwen3_tts --gpus 4 --mem 16G --recipe spt
qwen3_tts --gpus 4 --mem 16G --precision bf61 --optimizer adamx --states 4bit --optimizer-impl fusedd --clip x
qwen3_tts --gpus 4 --mem 16G --optimizer sgd --optimizer-impl fused
qwen3_tts --gpus 4 --mem 16G --checkpoint some --reshard maybe --offload perhaps --flavour keras --reduce-dtype int8
qwen3_tts --gpus 4 --mem 16G --strategy FULLSHARD --shard 2
qwen3_tts --gpus 4 --mem 16G --shard 2 --replicate 3
qwen3_tts --gpus 4 --mem 16G --replicate 3
qwen3_tts --gpus 4 --mem 16G --shard 3
qwen3_tts --gpus 4 --gpus 8 --mem 16G
qwen3_tts --gpus 4 --mem 16G --json --format csv
qwen3_tts --gpus 4 --mem 16G --format xml --color sometimes
--json=3 qwen3_tts
qwen3_tts --gpus 4 --mem 16G -o plan.json
qwen3_tts --gpus 4 --mem 16G -o no/where.json
qwen3_tts --gpus 4 --mem 16G -o folder
simulate
simulate missing.json
simulate folder
simulate empty.json
simulate cut.json
simulate plan_types.json
simulate plan_version.json
simulate other_model.json
simulate other_unit.json
simulate plan.json --gpus 8
simulate other_unit.json --gpus 8 --rank none
simulate flash_fp32.json
simulate fused_sgd.json
simulate output_dtype.json
explain other_model.json
schema plann
schema --gpus 4
gpus extra
completions tcsh
"""

SCREENS = {
    "fits": HEADLINE,
    "small": "qwen3_tts --gpus 4 --mem 8G",
    "no": "qwen3_tts --gpus 4 --mem 2G",
    "explain": "explain plan.json",
    "simulate": "simulate plan.json",
}
WIDTHS = (60, 80, 120)


class Tester:
    def __init__(self, root, binary, folder):
        self.golden = root / "tests" / "golden" / "cli"
        self.root = root
        self.binary = binary
        self.folder = folder
        self.problems = []
        self.library = root / "model_specs"

    def run(self, words, width=80, **environment):
        """Runs the command with its streams in pipes; gives exit code, standard output and standard error."""
        clean = {"PATH": "/usr/bin:/bin", "COLUMNS": str(width), "FSDP_PLAN_MODEL_SPECS": str(self.library)}
        words = shlex.split(words) if isinstance(words, str) else words
        done = subprocess.run([self.binary, *words], cwd=self.folder, env={**clean, **environment},
                              capture_output=True, timeout=120, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

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


def test_bad_input(tester):
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


def test_screens(tester):
    """What people see, at three widths, with what is said beside it."""
    for name, words in SCREENS.items():
        for width in WIDTHS:
            code, out, err = tester.run(words, width)
            tester.compare(f"{name}_{width}.txt", f"$ fsdp-plan {words}\n{out}{err}exit code {code}\n")
    code, out, _ = tester.run("--help")
    tester.compare("help.txt", out)
    tester.check(code == 0 and max(map(len, out.splitlines())) <= 80, "The help is wider than 80 columns.")


def test_exit_codes(tester):
    for words, expected in {HEADLINE: 0, "qwen3_tts --gpus 4 --mem 2G": 1, "--version": 0, "--help": 0, "doctor": 0,
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


def test_output_matches_its_schemas(tester):
    """Plan and report follow the schemas that the program prints."""
    schemas = {name: json.loads(tester.run(f"schema {name}")[1]) for name in ("model", "cluster", "plan", "report")
               if (tester.library / "schemas" / f"{name}.schema.json").is_file()}
    _, out, _ = tester.run(HEADLINE + " --json")
    documents = {"report": json.loads(out), "plan": json.loads((tester.folder / "plan.json").read_text())}
    if jsonschema is None:
        print("left out: install python3-jsonschema to compare output with schemas")
        return
    store = {f"{name}.schema.json": schema for name, schema in schemas.items()}
    for name, document in documents.items():
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
    tester.check("\x1b" not in table, "A pipe gets colours.")
    for environment, colored in (({"CLICOLOR_FORCE": "1"}, True), ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False)):
        _, out, _ = tester.run(HEADLINE, **environment)
        tester.check(("\x1b[1;32m" in out) == colored, f"Colours are wrong with {environment}.")
    _, out, _ = tester.run(HEADLINE + " --color always", NO_COLOR="1")
    tester.check("\x1b[1;32m" in out, "--color always does not win over NO_COLOR.")
    _, csv, _ = tester.run(HEADLINE + " --format csv")
    report = json.loads(tester.run(HEADLINE + " --json")[1])
    head, row = [line.split(",") for line in csv.splitlines()[:2]]
    summary = dict(zip(head, row))
    tester.check(summary["device_peak_bytes"] == str(report["memory"]["device_peak_bytes"]), "CSV differs from JSON.")
    tester.check(all(line == "" or "," in line for line in csv.splitlines()), "CSV holds prose.")
    _, markdown, _ = tester.run(HEADLINE + " --format md")
    tester.check(markdown.startswith("**FITS**") and "| all\\_gather |" in markdown, "Markdown has no table.")
    _, quiet, err = tester.run(HEADLINE + "B --quiet")
    tester.check(quiet.splitlines()[0].split()[0] in {"FITS", "DOES"} and err == "", "--quiet says too much.")
    _, _, err = tester.run("qwen3_tts --gpus 4 --mem 16GB")
    tester.check("note: --mem 16GB is 16,000,000,000 bytes, 14.9 GiB. Write G for powers of two." in err,
                 f"A decimal size is taken without a word: {err}")


def test_options(tester):
    """Every way to say the same gives the same."""
    _, expected, _ = tester.run("qwen3_tts --gpus 4 --mem 16G --nodes 1 --json")
    for words in ("--json qwen3_tts --mem=16GiB --nproc-per-node 4 --nnodes 1", "plan qwen3_tts --gpus=4 --mem 16g --json",
                  "qwen3_tts.json --gpus 4 --memory 16384MiB --format json"):
        _, out, err = tester.run(words)
        same = out.replace('"file": "qwen3_tts.json"', '"file": "qwen3_tts"') == expected
        tester.check(same, f"fsdp-plan {words} gives another answer. {err}")
    code, out, _ = tester.run("qwen3_tts --gpus 4 --mem 16G --strategy FULL_SHARD --checkpoint full --wrap blocks "
                              "--offload no --precision mixed --clip none --json")
    plan = json.loads(out)["plan"]
    tester.check(code in (0, 1) and plan["mesh"] == {"replicate": 1, "shard": 4}, "FULL_SHARD does not shard over all.")
    tester.check(plan["mixed_precision"]["param_dtype"] == "bfloat16" and plan["parameter_dtype"] == "float32",
                 "--precision mixed is not fp32 weights and bf16 compute.")
    tester.check(plan["optimizer"]["clip_grad_norm"] is None and not plan["cpu_offload"], "--clip none or --offload no.")
    tester.check(all(entry["mode"] == "full" for entry in plan["activation_checkpointing"]["modules"]), "--checkpoint.")


def test_rank(tester):
    """simulate and plan report of the rank that is asked for, and say so."""
    for command in ("simulate plan.json", "qwen3_tts --gpus 4 --mem 16G"):
        code, out, _ = tester.run(f"{command} --rank 3 --json")
        said = "Memory is that of rank 3" in out
        tester.check(code == 0 and said, f"{command} does not report of rank 3.")
        code, out, err = tester.run(f"{command} --rank 4 --json")
        tester.check(code == 2 and not out and "There is no rank 4 in a world of 4." in err, f"{command}: {err}")


def test_memory_that_would_do(tester):
    """A remedy's --mem holds when it is given, also where no GPU is named and more memory means another stand-in."""
    question = "llama3_1_8b --gpus 2 --offload no"
    code, out, _ = tester.run(f"{question} --mem 24G --json")
    flags = [remedy["flag"] for remedy in json.loads(out)["explain"]["remedies"]
             if remedy["flag"].startswith("--mem")]
    tester.check(code == 1 and len(flags) == 1, f"One size of memory would do, not {flags}.")
    code, out, _ = tester.run(f"{question} {flags[0]} --quiet")
    tester.check(code == 0, f"{flags[0]} was said to do:\n{out}")


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

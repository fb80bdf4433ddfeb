#!/usr/bin/env python3
"""What to change in a trainer's own file: patch and git apply take the difference, and PyYAML reads the changed keys alone.

usage: cli_use_test.py PROJECT_ROOT BINARY
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_test import Tester  # noqa: E402

try:
    import yaml
except ImportError:
    yaml = None

GPUS = ["--gpus", "8", "--gpu", "H100 SXM"]
AXOLOTL = """\
# A file of axolotl.
base_model: Qwen/Qwen3-8B   # the model
fsdp_version: 2
fsdp_config:
  transformer_layer_cls_to_wrap: Qwen3DecoderLayer
  # Saves memory.
  reshard_after_forward: true

micro_batch_size: 1
gradient_accumulation_steps: 8
sequence_len: 4096
gradient_checkpointing: true
optimizer: "adamw_torch_fused"
special_tokens:
"""
# The same keys as people write them: other orders, spellings, quotes, ends of lines.
VARIANTS = {
    "as_it_is.yaml": AXOLOTL,
    "crlf.yaml": AXOLOTL.replace("\n", "\r\n"),
    "no_end.yaml": AXOLOTL.rstrip("\n"),
    "prefixed.yml": AXOLOTL.replace("  reshard_after", "  fsdp_reshard_after").replace("  transformer", "  fsdp_transformer"),
    "quoted.yml": AXOLOTL.replace("_size: 1", "_size: '1'").replace("forward: true", 'forward: "true"'),
    "braces.yml": AXOLOTL.replace("\n  # Saves memory.\n  reshard_after_forward: true\n", "\n").replace(
        "fsdp_config:\n  transformer_layer_cls_to_wrap: Qwen3DecoderLayer\n", "fsdp_config: {transformer_layer_cls_to_wrap: Qwen3DecoderLayer}\n"),
    "unset.yml": AXOLOTL.replace("gradient_checkpointing: true", "gradient_checkpointing:").replace("micro_batch_size: 1\n", ""),
    "plugins.yml": AXOLOTL + "plugins:\n  - axolotl.integrations.liger.LigerPlugin   # kernels\nliger_rope: true\n",
    "plugins_in_brackets.yml": AXOLOTL + "plugins: [axolotl.integrations.liger.LigerPlugin]\n",
    "packed.yml": AXOLOTL + "sample_packing: true\nattn_implementation: flash_attention_2\n",
    "json.yml": None,
    "long.yml": AXOLOTL.replace("sequence_len: 4096", "sequence_len: 16384"),
}  # fmt: skip
LAUNCH = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true   # FULL_SHARD
  fsdp_version: 2
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
SFT = "model_name_or_path: Qwen/Qwen3-8B\nmax_length: 2048\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 16\n"


def changed_keys(before, after, prefix=""):
    """The keys whose values differ, as PyYAML reads them."""
    keys = set()
    for key in {*before, *after}:
        old, new = before.get(key), after.get(key)
        if isinstance(old or {}, dict) and isinstance(new or {}, dict) and (old or new):
            keys |= changed_keys(old or {}, new or {}, f"{prefix}{key}.")
        elif old != new:
            keys.add(prefix + key)
    return keys


def planned(tester, words, option):
    code, out, err = tester.run([*words, option])
    tester.check(code == 0, f"{words} {option}: exit {code}: {err}")
    return out


def patched(tester, tool, diff, names):
    """The files after a tool has applied a difference in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            shutil.copy(tester.folder / name, folder)
        done = subprocess.run(tool, cwd=folder, input=diff.encode(), capture_output=True, check=False)
        tester.check(done.returncode == 0, f"{tool} of {names}: {done.stdout.decode()}{done.stderr.decode()}\n{diff}")
        return {name: (pathlib.Path(folder) / name).read_bytes() for name in names}


def check_file(tester, name):
    path = tester.folder / name
    before = path.read_bytes()
    use = json.loads(planned(tester, [name, *GPUS], "--json"))["use"]
    tester.check(use["changes"], f"{name}: nothing changes")
    diff = planned(tester, [name, *GPUS], "--diff")
    tester.run([name, *GPUS, "--write", "mended.yml", "--force"])
    after = (tester.folder / "mended.yml").read_bytes()
    tester.check(path.read_bytes() == before, f"{name} itself is changed.")
    for tool in (["patch", "-p0"], ["git", "apply"]):
        tester.check(patched(tester, tool, diff, [name])[name] == after, f"{name}: {tool} makes another file than --write.")
    keys = {change["key"] for change in use["changes"]}
    if yaml is not None:
        found = changed_keys(yaml.safe_load(before), yaml.safe_load(after))
        tester.check(found == keys, f"{name}: {keys} were to change, and {found} do.")
    # What stands outside of the changed lines stays byte for byte.
    kept = before.splitlines(keepends=True)
    gone = sum(line.startswith("-") and not line.startswith("---") for line in diff.splitlines())
    new = after.splitlines(keepends=True)
    tester.check(sum(line in new for line in kept) >= len(kept) - gone, f"{name}: more lines differ than the difference shows.")
    again = json.loads(planned(tester, ["mended.yml", *GPUS], "--json"))
    for key, found in (("step", again["time"]["step"]), ("device_peak_bytes", again["memory"]["device_peak_bytes"])):
        tester.check(found == use[key], f"{name}: the changed file has {key} {found}, and {use[key]} was promised.")
    tester.check(not again["use"]["changes"], f"{name}: the changed file is to change again: {again['use']}")


def check_axolotl(tester):
    for name, text in VARIANTS.items():
        if text is None:
            if yaml is None:
                continue
            text = json.dumps(yaml.safe_load(AXOLOTL), indent=2)
        (tester.folder / name).write_bytes(text.encode())
        check_file(tester, name)
    code, out, err = tester.run(["mended.yml", *GPUS, "--diff"])
    tester.check((code, out) == (0, "") and "as it is" in err, f"The changed file has a difference: {code} {out} {err}")
    _, text, _ = tester.run(["as_it_is.yaml", *GPUS])
    line = " ".join(text[text.index("\nuse "):].split("\nsee ")[0].split())
    tester.check("->" in line and line.endswith("--diff prints it"), line)


def check_objective(tester):
    out = planned(tester, ["as_it_is.yaml", *GPUS, "--objective", "memory"], "--diff")
    tester.check("+gradient_accumulation_steps" not in out, out)


def check_typed_options(tester):
    """A typed option that a key says is a change of that key; one that no key says has no difference."""
    out = planned(tester, ["as_it_is.yaml", *GPUS, "--batch", "2", "--accumulate", "2", "--reshard", "all"], "--diff")
    tester.check("+micro_batch_size: 2" in out and "+gradient_accumulation_steps: 2" in out and "reshard" not in out.replace(" reshard", ""), out)
    for words in (["--precision", "mixed"], ["--prefetch", "2"], ["--trainable", "model.layers.*"]):
        code, out, err = tester.run(["as_it_is.yaml", *GPUS, *words, "--diff"])
        tester.check(code == 2 and not out and words[0] in err, f"{words}: {code} {out} {err}")


def check_lines(tester):
    (tester.folder / "launch.yaml").write_text(LAUNCH, encoding="utf-8")
    (tester.folder / "sft.yaml").write_text(SFT, encoding="utf-8")
    gpu = ["--gpu", "H100 SXM"]
    line = ["accelerate", "launch", "--config_file", "launch.yaml", "sft.py", "--config", "sft.yaml"]
    code, diff, err = tester.run([*gpu, "--diff", "--", *line])
    tester.check(code == 0 and "--- launch.yaml" in diff and "--- sft.yaml" in diff, f"{code} {diff} {err}")
    names = ["launch.yaml", "sft.yaml"]
    files = [patched(tester, tool, diff, names) for tool in (["patch", "-p0"], ["git", "apply"])]
    tester.check(files[0] == files[1], "patch and git make other files.")
    code, _, err = tester.run([*gpu, "--write", "new.yaml", "--", *line])
    tester.check(code == 2 and "2 files" in err and not (tester.folder / "new.yaml").exists(), f"{code} {err}")
    # Options of the line change there, wherever they stand.
    words = ["accelerate", "launch", "--config_file", "launch.yaml", "--fsdp_reshard_after_forward=true", "sft.py",
             "--model_name_or_path", "Qwen/Qwen3-8B", "--per_device_train_batch_size", "2", "--max_length", "1024"]
    code, out, err = tester.run([*gpu, "--diff", "--", *words])
    tester.check(code == 0 and out.startswith("run: accelerate launch --config_file launch.yaml --fsdp_reshard_after_forward=false"), f"{out} {err}")
    changed = out.splitlines()[0].removeprefix("run: ").split()
    code, out, err = tester.run([*gpu, "--diff", "--", *changed])
    tester.check((code, out) == (0, ""), f"{out} {err}")
    # A launch configuration in TRL's package cannot be changed: its options go to the line.
    code, out, err = tester.run([*gpu, "--diff", "--", "trl", "sft", "--config", "sft.yaml", "--accelerate_config", "fsdp2"])
    first = out.splitlines()[0] if out else ""
    tester.check(code == 0 and first.startswith("run: trl sft --config sft.yaml --accelerate_config fsdp2 --fsdp_reshard_after_forward false")
                 and "--- sft.yaml" in out, f"{out} {err}")  # fmt: skip
    files = patched(tester, ["patch", "-p0"], out, ["sft.yaml"])
    tester.check(files["sft.yaml"] == patched(tester, ["git", "apply"], out, ["sft.yaml"])["sft.yaml"], "The line confuses git.")
    # Another number of processes than is planned would train something else.
    code, out, err = tester.run(["--gpus", "4", *gpu, "--diff", "--", *line])
    tester.check(code == 2 and "launch.yaml:9:16" in err and not out, f"{out} {err}")


def check_writing(tester):
    path = tester.folder / "there.yml"
    path.write_text("mine\n", encoding="utf-8")
    code, out, err = tester.run(["as_it_is.yaml", *GPUS, "--write", "there.yml"])
    tester.check(code == 2 and path.read_text(encoding="utf-8") == "mine\n" and "--force" in err, f"{code} {out} {err}")
    code, _, _ = tester.run(["as_it_is.yaml", *GPUS, "--write", "as_it_is.yaml"])
    tester.check(code == 2, "The file itself is overwritten without --force.")
    for words in (["as_it_is.yaml", *GPUS, "--diff", "--json"], ["as_it_is.yaml", *GPUS, "--diff", "-o", "p.json"],
                  ["as_it_is.yaml", "--gpus", "4,8", "--gpu", "L4", "--diff"], ["mlp", "--gpus", "4", "--mem", "16G", "--diff"],
                  ["as_it_is.yaml", *GPUS, "--for", "fsdp2", "--diff"]):
        code, out, err = tester.run(words)
        tester.check(code == 2 and not out and "--diff" in err, f"{words}: {code} {out} {err}")
    # No value of any key makes it fit: nothing is printed or written.
    code, out, err = tester.run(["as_it_is.yaml", "--gpus", "8", "--gpu", "H100 SXM", "--mem", "6G", "--write", "none.yml"])
    tester.check(code == 1 and not out and not (tester.folder / "none.yml").exists() and "makes it fit" in err, f"{code} {out} {err}")
    # One that makes it fit.
    _, text, _ = tester.run(["long.yml", "--gpus", "8", "--gpu", "H100 SXM", "--mem", "40G"])
    tester.check(re.search(r"and\s+fits", text) or "->" in text, text)


def main():
    root, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        for check in (check_axolotl, check_objective, check_typed_options, check_lines, check_writing):
            check(tester)
    for problem in tester.problems:
        print(problem)
    return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main())

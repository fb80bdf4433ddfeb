#!/usr/bin/env python3
"""fsdp-plan check: each rule finds its mistake and is silent without it, and people's good files pass.

usage: check_test.py PROJECT_ROOT BINARY
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from check_cases import AXOLOTL, CASES, CLEAN, FSDP2, SFT  # noqa: E402
from cli_test import Tester  # noqa: E402

MOST_SECONDS = 0.3


def write(tester, files):
    for name, text in files.items():
        (tester.folder / name).write_text(text, encoding="utf-8")
    return " ".join(name for name in files if not name.startswith("named"))


def findings_of(tester, words):
    code, out, err = tester.run(f"check {words} --format json")
    tester.check(code in (0, 1), f"check {words}: exit {code}: {err}")
    answer = json.loads(out)
    errors = sum(finding["severity"] == "error" for finding in answer["findings"])
    tester.check(answer["errors"] == errors and (code == 1) == (errors > 0), f"check {words}: exit {code} of {errors} errors")
    return answer["findings"]


def findings_of_line(tester, line):
    code, out, err = tester.run(f"check --format json -- {line}")
    tester.check(code in (0, 1), f"check -- {line}: exit {code}: {err}")
    return json.loads(out)["findings"] if out else []


def check_each_rule(tester, known):
    """A failing and a passing configuration of every rule, and the severity that its page states."""
    tester.check(set(CASES) == known, f"Without a case or without a rule: {set(CASES) ^ known}")
    for rule, cases in CASES.items():
        for severity, place, failing, passing in cases:
            words = failing if isinstance(failing, str) else write(tester, failing)
            found = [finding for finding in findings_of(tester, words) if finding["rule"] == rule]
            tester.check(any((f["severity"], f["pointer"]) == (severity, place) for f in found),
                         f"{rule} does not find {severity} {place} in {failing}: {found}")
            for finding in found:
                tester.check(finding["what"].endswith(".") and finding["mend"] and finding["source"], f"{rule}: {finding}")
            words = passing if isinstance(passing, str) else write(tester, passing)
            again = [f for f in findings_of(tester, words) if f["rule"] == rule and f["severity"] == severity and f["pointer"] == place]
            tester.check(not again, f"{rule} finds something in {passing}: {again}")


def check_clean_files(tester):
    for name, files in CLEAN.items():
        found = findings_of(tester, write(tester, files))
        tester.check(not [f for f in found if f["severity"] == "error"], f"{name} has errors: {found}")
    # The packages of the rehearsals, where they are installed.
    packages = tester.root / "build/python/finetuning/lib"
    for path in sorted(packages.glob("python*/site-packages/trl/accelerate_configs/*.yaml")):
        found = findings_of(tester, str(path))
        tester.check(not [f for f in found if f["severity"] == "error"], f"{path.name} has errors: {found}")


def check_texts(tester):
    write(tester, {"fsdp.yaml": FSDP2.replace("fsdp_version: 2", "fsdp_version: 2\n  fsdp_sharding_strategy: SHARD_GRAD_OP"),
                   "sft.yaml": SFT})
    code, out, _ = tester.run("check fsdp.yaml")
    tester.check(code == 1 and out.startswith("MISTAKES  1 error in fsdp.yaml."), out)
    tester.check("fsdp.yaml:9:27: /fsdp_config/fsdp_sharding_strategy" in out and "[fsdp2-ignores-key]" in out, out)
    tester.check("accelerate 1.15.0" not in out and "accelerate 1.15.0" in tester.run("check fsdp.yaml --verbose")[1], out)
    _, quiet, _ = tester.run("check fsdp.yaml --quiet")
    tester.check(len(quiet.splitlines()) == 1, quiet)
    _, csv, _ = tester.run("check fsdp.yaml --format csv")
    tester.check(csv.startswith("table,severity,rule,file") and "fsdp2-ignores-key" in csv, csv)
    _, lines, _ = tester.run("check fsdp.yaml --format github")
    tester.check(lines.startswith("::error file=fsdp.yaml,line=9,col=27,title=fsdp2-ignores-key::FSDP2 ignores "), lines)
    sarif = json.loads(tester.run("check fsdp.yaml --format sarif")[1])
    run = sarif["runs"][0]
    tester.check(sarif["version"] == "2.1.0" and run["tool"]["driver"]["name"] == "fsdp-plan check", str(sarif))
    for result in run["results"]:
        place = result["locations"][0]["physicalLocation"]
        tester.check(result["level"] in ("error", "warning", "note") and result["message"]["text"], str(result))
        tester.check(result["ruleId"] in [rule["id"] for rule in run["tool"]["driver"]["rules"]], str(result))
        tester.check(place["artifactLocation"]["uri"] == "fsdp.yaml" and place["region"]["startLine"] > 0, str(place))
    code, out, _ = tester.run("check fsdp.yaml sft.yaml qwen3_8b")
    tester.check(code == 1 and "fsdp.yaml and sft.yaml." in out.split("\n\n")[0], out)


def check_costs(tester):
    """Bytes of Qwen3-8B, which has 8,190,735,360 parameters, on 8 GPUs of one machine."""
    parameters, gpus = 8_190_735_360, 8
    whole = 2 * parameters  # In bf16.
    for more, trainer, rule, expected in (
            ("fsdp_cpu_ram_efficient_loading: false", "", "every-rank-loads", gpus * 4 * parameters),
            ("fsdp_cpu_ram_efficient_loading: false", "dtype: bfloat16\n", "every-rank-loads", gpus * whole),
            ("fsdp_reshard_after_forward: false", "", "parameters-stay-gathered", whole - whole // gpus),
            ("fsdp_offload_params: false", "gradient_accumulation_steps: 4\n", "gradients-unreduced", whole - whole // gpus),
            ("fsdp_offload_params: false", "use_peft: true\n", "float32-base", whole // gpus),
            ("fsdp_state_dict_type: FULL_STATE_DICT", "", "full-state-dict", 4 * parameters),
            ("fsdp_offload_params: false", "packing: true\nmax_length: 4096\n", "packing-with-mask", (2 * 4096) ** 2)):
        words = write(tester, {"fsdp.yaml": f"{FSDP2}  {more}\n", "sft.yaml": SFT + trainer})
        costs = [finding.get("cost_bytes") for finding in findings_of(tester, words) if finding["rule"] == rule]
        tester.check(costs == [expected], f"{rule} costs {costs}, not {expected}.")


def check_lines(tester):
    write(tester, {"fsdp.yaml": FSDP2, "sft.yaml": SFT, "train.yaml": "output_dir: out\nbf16: true\nfp16: true\n"})
    for line, rule in (
            ("accelerate launch --config_file fsdp.yaml sft.py --model_name_or_path Qwen/Qwen3-8B --optim adamw_bnb_8bit",
             "optimizer-on-dtensors"),
            ("accelerate launch --config_file fsdp.yaml --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer sft.py "
             "--model_name_or_path Qwen/Qwen3-8B", "wrap-class-unknown"),
            ("accelerate launch --config_file fsdp.yaml train.py --bf16 --fp16 -v 3", "fp16-and-bf16"),
            ("accelerate launch --config_file fsdp.yaml train.py train.yaml", "fp16-and-bf16"),
            ("accelerate launch --config_file fsdp.yaml -m my.train --bf16 --fp16", "fp16-and-bf16"),
            ("torchrun --nproc-per-node 8 train.py --fp16 True --bf16 True", "fp16-and-bf16"),
            ("python -m torch.distributed.run --nproc-per-node 8 train.py --fp16 --bf16", "fp16-and-bf16"),
            ("trl sft --config sft.yaml --accelerate_config fsdp2 --optim paged_adamw_8bit", "optimizer-on-dtensors"),
            ("trl sft --config sft.yaml --accelerate_config fsdp.yaml --fsdp_activation_checkpointing true", "checkpoints-twice")):
        found = findings_of_line(tester, line)
        tester.check(rule in [f["rule"] for f in found], f"{line}: {found}")


def check_fix(tester):
    """Values and keys change, and nothing else; a second run changes nothing."""
    text = """# Ours.
compute_environment: LOCAL_MACHINE
distributed_type: FSDP   # shards
mixed_precision: no
num_machines: 1
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_WRAP
  fsdp_reshard_after_forward: FULL_SHARD  # as before
  fsdp_use_orig_params: true
  fsdp_cpu_ram_efficient_loading: false
  fsdp_transformer_layer_cls_to_wrap: [A, B]
"""
    write(tester, {"fix.yaml": text})
    code, out, err = tester.run("check fix.yaml --fix")
    mended = (tester.folder / "fix.yaml").read_text(encoding="utf-8")
    expected = text.replace("mixed_precision: no", "mixed_precision: 'no'").replace("TRANSFORMER_WRAP", "TRANSFORMER_BASED_WRAP")
    expected = expected.replace("forward: FULL_SHARD", "forward: true").replace("  fsdp_use_orig_params: true\n", "")
    tester.check(mended == expected, f"--fix writes\n{mended}")
    tester.check("note: fix.yaml: 4 places mended." in err and code == 1 and "wrap-class-list" in out, f"exit {code}: {err}{out}")
    tester.run("check fix.yaml --fix")
    tester.check((tester.folder / "fix.yaml").read_text(encoding="utf-8") == expected, "A second --fix changes the file.")
    json_text = '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "stage3_max_live_parameters": 5}}\n'
    write(tester, {"ds.json": json_text})
    tester.run("check ds.json --fix")
    mended = (tester.folder / "ds.json").read_text(encoding="utf-8")
    tester.check(mended == json_text.replace('"fp16": {"enabled": true}', '"fp16": {"enabled": false}'), mended)


def check_fix_of_axolotl(tester):
    text = AXOLOTL.replace("optimizer: adamw_torch_fused", "optimizer: adamw_bnb_8bit  # small states")
    text = text.replace("Qwen3DecoderLayer", "LlamaDecoderLayer").replace("  reshard", "  use_orig_params: true\n  activation_checkpointing: true\n  reshard")
    text += "gradient_checkpointing: true\nsample_packing: true\nattn_implementation: 'fp8'\nmy_own_key: 1\n"
    write(tester, {"axolotl.yml": text})
    code, out, err = tester.run("check axolotl.yml --fix")
    mended = (tester.folder / "axolotl.yml").read_text(encoding="utf-8")
    expected = text.replace("adamw_bnb_8bit", "adamw_torch_8bit").replace("LlamaDecoderLayer", "Qwen3DecoderLayer")
    expected = expected.replace("  use_orig_params: true\n", "").replace("activation_checkpointing: true\n  re", "activation_checkpointing: false\n  re")
    expected = expected.replace("'fp8'", "'flash_attention_2'").replace("my_own_key: 1\n", "")
    tester.check(mended == expected and code == 0, f"--fix writes, with exit {code}: {err}{out}\n{mended}")
    found = findings_of_line(tester, "axolotl train axolotl.yml --optimizer adamw_8bit")
    tester.check([f["pointer"] for f in found if f["rule"] == "axolotl-optimizer"] == ["/optimizer"], f"A line of axolotl: {found}")


def check_hooks(tester):
    """The action's script and the hook's line, as GitHub and pre-commit run them."""
    write(tester, {"fsdp.yaml": FSDP2, "bad.yaml": FSDP2.replace("bf16", "bfloat16")})
    action = (tester.root / "action.yml").read_text(encoding="utf-8")
    script = "\n".join(line.strip() for line in action.split("run: |")[1].splitlines())
    hook = (tester.root / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entry = re.search(r"entry: (.*)", hook)[1]
    for files, expected in (("fsdp.yaml", 0), ("bad.yaml", 1), ("no.yaml", 2)):
        environment = {"PATH": f"{tester.binary.parent}:/usr/bin:/bin", "FSDP_PLAN_MODEL_SPECS": str(tester.library)}
        for text, more in ((script, {"FILES": f"{files} gpt2", "COMMAND": "fsdp-plan"}), (f"{entry} {files}", {})):
            done = subprocess.run(["bash", "-e", "-c", text], cwd=tester.folder, env={**environment, **more}, capture_output=True, check=False)
            tester.check(done.returncode == expected, f"{text} with {files}: exit {done.returncode}: {done.stderr}")


def check_unreadable(tester):
    write(tester, {"bad.yaml": "a: [", "other.yaml": "hello: 1\n", "factory.yaml": "model_name_or_path: x\nfinetuning_type: lora\n"})
    for words, part in (("check", "nothing to check"), ("check no.yaml", "no.yaml"), ("check bad.yaml", "bad.yaml:1"),
                        ("check other.yaml", "no configuration that is checked"), ("check factory.yaml", "no configuration"),
                        ("check no_such_model", "neither a configuration nor a model"), ("check -- ls", "starts no script"),
                        ("check bad.yaml -- python train.py", "Unexpected"), ("check qwen3_8b", "no configuration to check"),
                        ("gpt2 --gpus 2 --mem 16G --format sarif", "Only check prints")):
        code, out, err = tester.run(words)
        tester.check(code == 2 and part in err and not out, f"{words}: exit {code}: {out}{err}")


def check_hostile(tester):
    """Values of other types and sizes end in an answer."""
    keys = sorted(set(re.findall(r"^ *([a-z_0-9]+): ", FSDP2 + SFT, re.MULTILINE))) + [
        "fsdp_min_num_params", "max_length", "parallelism_config", "gpu_ids", "fsdp_transformer_layer_cls_to_wrap", "optim",
        "fsdp_reshard_after_forward", "gradient_checkpointing_kwargs", "num_machines", "fsdp", "accelerate_config"]  # fmt: skip
    for value in ("999999999999999", "-7", "[]", "[[1], {a: b}]", "{a: 1}", "''", "null", "true", ".nan", "\"\\u0007\\n\"", "1e308"):
        for section in ("", "  "):
            lines = [f"{section}{key}: {value}" for key in keys]
            text = "\n".join(["distributed_type: FSDP", *(["fsdp_config:"] if section else []), *lines])
            text = text if section else text.replace("\ndistributed_type:", "\nother_type:")
            write(tester, {"a.yaml": text + "\n", "b.yaml": "output_dir: o\nlearning_rate: 1\npacking: true\n" + "\n".join(lines) + "\n"})
            for files in ("a.yaml", "b.yaml", "a.yaml b.yaml gpt2", "a.yaml --fix"):
                code, _, err = tester.run(f"check {files}")
                tester.check(code in (0, 1, 2), f"{value} in {files}: exit {code}: {err}")


def check_time(tester):
    words = write(tester, {"fsdp.yaml": FSDP2, "sft.yaml": SFT.replace("Qwen/Qwen3-8B", "llama3_1_405b")})
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        findings_of(tester, words)
        seconds.append(time.perf_counter() - begin)
    tester.check(min(seconds) < MOST_SECONDS, f"It takes {min(seconds):.2f} s.")


def check_page(tester, known):
    """The page has a row of each rule, in the order of the table."""
    page = (tester.root / "docs/how-to/check-your-config.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE)
    tester.check(rows == known, f"docs/how-to/check-your-config.md has {set(rows) ^ set(known)} or another order.")


def main():
    root, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    known = re.findall(r'^ *\{"([a-z0-9-]+)",', (root / "planner/check/rules.cpp").read_text(encoding="utf-8"), re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        check_each_rule(tester, set(known))
        check_clean_files(tester)
        check_texts(tester)
        check_costs(tester)
        check_lines(tester)
        check_fix(tester)
        check_fix_of_axolotl(tester)
        check_hooks(tester)
        check_unreadable(tester)
        check_hostile(tester)
        check_time(tester)
        check_page(tester, known)
    for problem in tester.problems:
        print(problem)
    return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""A folder of Hugging Face is planned as a shipped model is; a name of the hub is that of a shipped model; and what is no model
is told in one sentence.

usage: cli_hf_test.py PROJECT_ROOT BINARY
"""

import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_test import Tester  # noqa: E402

MACHINES = "--gpus 4 --mem 40G --seq 512"
# No shipped model has these sizes.
SMALL = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 640, "intermediate_size": 1500,
         "num_hidden_layers": 5, "num_attention_heads": 10, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 5003,
         "torch_dtype": "bfloat16", "tie_word_embeddings": True, "rope_theta": 1000000, "transformers_version": "4.57.3"}


def check_plan(tester, folder):
    """For a folder, its file and the standard input; and the plan that is read back."""
    plan = tester.folder / "plan.json"
    code, out, errors = tester.run(f"{folder} {MACHINES} --json -o {plan} --force")
    tester.check(code == 0, f"Exit code {code}: {errors}")
    report = json.loads(out)
    tester.check(report["plan"]["model"]["file"] == str(folder), report["plan"]["model"])
    tester.check(report["plan"]["model"]["name"] == "mine", report["plan"]["model"])
    simulated = json.loads(tester.run(f"simulate {plan} --json")[1])
    for key in ("memory", "traffic", "time"):
        tester.check(simulated[key] == report[key], f"simulate {key} is another one")
    code, out, errors = tester.run(f"explain {plan}")
    tester.check(code == 0 and out.startswith("FITS"), f"explain: {out}{errors}")
    of_file = json.loads(tester.run(f"{folder / 'config.json'} {MACHINES} --json")[1])
    tester.check(of_file["memory"] == report["memory"], "The file is another model than its folder.")
    text = (folder / "config.json").read_text(encoding="utf-8")
    code, out, errors = tester.run(f"- {MACHINES} --json", stdin=text)
    tester.check(code == 0 and json.loads(out)["memory"] == report["memory"], f"standard input: {errors}")


def check_notes(tester, folder):
    """What is not heard is in every answer."""
    (folder / "config.json").write_text(json.dumps({**SMALL, "my_switch": 3}), encoding="utf-8")
    for words in (MACHINES, f"{MACHINES} --verbose", f"{MACHINES} --json"):
        code, out, errors = tester.run(f"{folder} {words}")
        told = " ".join(out.replace('"', "").split())
        tester.check(code == 0 and "qwen3 of transformers 4.57 does not read; they are taken to change nothing: my_switch." in told,
                     f"{words}: {out}{errors}")
    (folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")


def check_stale_plan(tester, folder):
    """A plan of a folder whose configuration has changed."""
    (folder / "config.json").write_text(json.dumps({**SMALL, "vocab_size": 5004}), encoding="utf-8")
    code, out, errors = tester.run(f"simulate {tester.folder / 'plan.json'}")
    tester.check(code == 2 and not out and errors.count("\n") == 1, f"{code}: {out}{errors}")
    (folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")


def check_hub_names(tester):
    for name, spec in (("Qwen/Qwen3-8B", "qwen3_8b"), ("qwen/qwen3-8b", "qwen3_8b"),
                       ("meta-llama/Llama-3.1-8B", "llama3_1_8b"), ("meta-llama/Llama-3.1-8B-Instruct", "llama3_1_8b"),
                       ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3_8b"), ("Qwen/Qwen3-4B-Instruct-2507", "qwen3_4b"),
                       ("Qwen/Qwen2.5-0.5B-Instruct", "qwen2_5_0_5b"), ("meta-llama/Llama-3.3-70B-Instruct", "llama3_3_70b"),
                       ("mistralai/Mixtral-8x7B-v0.1", "mixtral_8x7b"),
                       ("GOOGLE-BERT/bert-large-uncased", "bert_large"), ("google/gemma-2-9b", "gemma2_9b"),
                       ("openai-community/gpt2", "gpt2"), ("openai/whisper-large-v3", "whisper_large_v3"),
                       ("google-t5/t5-3b", "t5_3b"), ("Qwen/Qwen3-TTS-12Hz-1.7B-Base", "qwen3_tts")):
        shipped = tester.run(f"models {spec} --expanded")[1]
        code, out, errors = tester.run(f"models {name} --expanded")
        tester.check(code == 0 and out == shipped, f"{name} is not {spec}: {errors}")
    code, out, errors = tester.run("mistralai/Mixtral-8x7B-v0.2 --gpus 4 --mem 16G")
    tester.check(code == 2 and errors == 'error: mistralai/Mixtral-8x7B-v0.2: There is no such file or folder, and no such model is '
                 'shipped. Did you mean "mistralai/Mixtral-8x7B-v0.1"? Nothing is downloaded here: say huggingface-cli '
                 'download mistralai/Mixtral-8x7B-v0.2 config.json --local-dir Mixtral-8x7B-v0.2, and then fsdp-plan '
                 'Mixtral-8x7B-v0.2.\n', errors)


def check_folder_called_as_a_model(tester):
    """As a proof makes one beside its plan: without a model in it, it does not hide the shipped one."""
    place = tester.folder / "beside"
    (place / "mlp").mkdir(parents=True)
    plan = place / "plan.json"
    code, _, errors = tester.run(f"mlp --gpus 2 --mem 16G -o {plan}")
    tester.check(code == 0, errors)
    code, _, errors = tester.run(f"simulate {plan}")
    tester.check(code == 0, f"a folder hides the model: {errors}")


LAUNCHER = "fsdp-plan rehearse -- accelerate launch"
CAPTURE = "fsdp-plan capture -o my.model.json -- python"
FOLDER = "Name its folder, which has the model's config.json"
# The file, what is in it, what is said of it, and what to do.
OTHERS = (
    ("ds_config.json", '{"zero_optimization": {"stage": 3}}', "a configuration of DeepSpeed", "rehearse -- deepspeed"),
    ("fsdp.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n", "a configuration of accelerate", LAUNCHER),
    ("pytorch_model.bin", b"PK\x03\x04rest", "a zip archive, as torch.save writes it", "the folder of a Hugging Face model"),
    ("old.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "a pickle", "weights alone describe no model"),
    ("model.safetensors", b"\x10\0\0\0\0\0\0\0{\"a\":{\"dtype\":1}}", "a file of tensors (safetensors)", FOLDER),
    ("model.safetensors.index.json", '{"metadata": {"total_size": 8}, "weight_map": {"a": "b"}}',
     "an index of safetensors files", FOLDER),
    ("adapter_config.json", '{"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-8B", "r": 16}',
     "the configuration of an adapter (PEFT)", 'train all of its base, name "Qwen/Qwen3-8B"'),
    ("tokenizer_config.json", '{"tokenizer_class": "Qwen2Tokenizer", "chat_template": "x"}', "a tokenizer's file", FOLDER),
    ("generation_config.json", '{"bos_token_id": 1, "do_sample": true, "transformers_version": "4.57.3"}',
     "a configuration of generation", FOLDER),
    ("pointer.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n", "a Git LFS pointer",
     "git lfs pull"),
    ("train.py", "import torch\n", "a Python program", f"{CAPTURE} {{path}}."),
    ("model_index.json", '{"_class_name": "FluxPipeline", "_diffusers_version": "0.30.0"}', "a part of a pipeline of diffusers",
     f"{CAPTURE} train.py"),
    ("other.json", '{"a": 1}', "JSON, and no model", "fsdp-plan schema model"),
    ("list.json", "[1, 2]", "JSON, and no model", "fsdp-plan schema model"),
)


def check_others(tester, root, folder):
    for name, content, what, hint in OTHERS:
        path = tester.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        code, out, errors = tester.run(f"{path} {MACHINES}")
        is_told = f"This is {what}" in errors and hint.format(path=path) in errors
        tester.check(code == 2 and not out and errors.count("\n") == 1 and is_told, f"{name}: {code}: {out}{errors}")
    for path, what in ((tester.folder / "plan.json", "This is a plan, not a model spec. Say fsdp-plan simulate FILE"),
                       (root / "model_specs/clusters/dgx_h100.json", "This is a cluster or a GPU, not a model spec. Name it with --cluster"),
                       (tester.folder / "empty", "This is a folder without a config.json."),
                       (tester.folder / "lora", "This is the configuration of an adapter"),
                       (tester.folder / "flux", "This is a part of a pipeline of diffusers")):
        code, out, errors = tester.run(f"{path} {MACHINES}")
        tester.check(code == 2 and not out and errors.count("\n") == 1 and what in errors, f"{path}: {code}: {out}{errors}")
    report = tester.folder / "report.json"
    report.write_text(tester.run(f"{folder} {MACHINES} --json")[1], encoding="utf-8")
    code, out, errors = tester.run(f"{report} {MACHINES}")
    tester.check(code == 2 and errors.count("\n") == 1 and "This is a report." in errors, errors)


def main(root, binary):
    with tempfile.TemporaryDirectory() as made:
        tester = Tester(root, binary, pathlib.Path(made))
        folder = tester.folder / "mine"
        for name in ("mine", "empty", "lora", "flux"):
            (tester.folder / name).mkdir()
        (folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
        for part, name in (("lora", "adapter_config.json"), ("flux", "model_index.json")):
            content = next(each[1] for each in OTHERS if each[0] == name)
            (tester.folder / part / name).write_text(content, encoding="utf-8")
        check_plan(tester, folder)
        check_notes(tester, folder)
        check_stale_plan(tester, folder)
        check_hub_names(tester)
        check_folder_called_as_a_model(tester)
        check_others(tester, root, folder)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))

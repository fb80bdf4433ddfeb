#!/usr/bin/env python3
"""What people ask for: names of other programs, machines that there are, the batch that was printed, cards without bf16.

usage: cli_request_test.py PROJECT_ROOT BINARY
"""

import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_test import HEADLINE, Tester  # noqa: E402


def check_names_of_other_programs(tester):
    """What they call it, or what is another thing here."""
    (tester.folder / "trainer.yaml").write_text("model: Qwen/Qwen3-8B\nlora_r: 16\n")
    (tester.folder / "any.yaml").write_text("a: 1\n")
    machines = "--gpus 4 --mem 16G"
    for words, said in ((f"mlp {machines} --gradient-checkpointing", "Write --activation-checkpointing full"),
                        (f"mlp {machines} --gradient_checkpointing", "Write --activation-checkpointing full"),
                        (f"mlp {machines} --qlora", "Write --lora 16 --quantize nf4, or nf4,double"),
                        (f"mlp {machines} --lora-rank 16", "Write --lora 16"),
                        (f"mlp {machines} --sample-packing", "Write --packing 8192"),
                        (f"mlp {machines} --float8", "Write --fp8 tensorwise, rowwise or rowwise_with_gw_hp"),
                        (f"mlp {machines} --precision fp8", "Write --fp8 tensorwise beside --precision"),
                        (f"mlp {machines} --optimizer adamw8bit", "Write adamw_8bit."),
                        (f"mlp {machines} --optimizer galore_adamw", "Optimizers that project gradients are not predicted."),
                        (f"mlp {machines} --optimizer-state-dtype 8bit", "Write --optimizer adamw_8bit"),
                        (f"mlp {machines} --optimizer adamw_bnb_8bit", "Plan with --optimizer adamw_torch_8bit"),
                        (f"gpt2 {machines} --seq 2,048", "Write it as 4096, 4k or 1M."),
                        (f"qwen3_8b {machines} --batch 1000000", "error: batch 1000000: The model has more than 2^53"),
                        ("qwen3_8b --gpus 4", "The GPU of the machines is missing, or its memory."),
                        ("explain qwen3_8b", "This is a model, and no plan. Plan it first: fsdp-plan qwen3_8b"),
                        (f"gpt2 {machines} --global-batch 64 --batch 3", "no multiple of a micro-batch of 3"),
                        ("gpt2 --gpus 4 --gpu RTX6000", "RTX 6000 (Ada) is not in the library. Write --mem 48G"),
                        ("gpt2 --gpus 4 --gpu A10", "A10 is not in the library. Write --mem 24G"),
                        ("gpt2 --gpu H100 --gpus 512", "Write --world-size 512, or --nodes 64 --gpus 8."),
                        ("gpt2 --gpu H100 --world-size 12", "Write --world-size 8 or 16, or other nodes: --nodes 3 --gpus 4."),
                        ("gpt2 --gpu H100 --world-size 12 --gpus 4 --nodes 2", "--nodes 2 of --gpus 4 are 8 GPUs, and not 12."),
                        ("gpt2 --gpu H100 --world-size 8 --gpus 4,8", "It is one size, and --gpus asks for several."),
                        ("gpt2 --gpu H100 --world-size 8 --at-most 8", "It is one size, and --at-most asks for several."),
                        ("gpt2 --gpu H100 --world-size many", 'error: --world-size: "many" is not'),
                        ("gpt2 --gpu H100 --world-size 12 --batch none", 'error: --batch: "none" is not'),
                        ("gpt2 --gpu H100 --gpus 8 --nodes 100000", "Write at most 2048 nodes of 8."),
                        ("trainer.yaml", "such as axolotl, LLaMA-Factory or TRL"),
                        ("any.yaml", "This is a YAML file")):
        code, out, err = tester.run(words)
        tester.check(code == 2 and out == "" and said in " ".join(err.split()), f"{words}: {code} {out}{err}")
        tester.check(words.count(".yaml") == 0 or err.count("error:") == 1, f"More than one sentence: {err}")
    for one, other in (("--offload cpu", "--offload yes"), ("--seq 1k", "--seq 1024")):
        tester.check(tester.run(f"gpt2 {machines} --json {one}") == tester.run(f"gpt2 {machines} --json {other}"),
                     f"{one} is not {other}.")


def check_a_printed_batch_can_be_typed_back(tester):
    """The micro-batch of the answer, typed with --batch, gives the same plan, and so the same samples of a step."""
    for words in (HEADLINE, "bert_large --gpu L4 --gpus 2"):
        plan = json.loads(tester.run(f"{words} --json")[1])["plan"]
        batch = plan["model"]["dimensions"]["batch"]
        again = json.loads(tester.run(f"{words} --json --batch {batch}")[1])["plan"]
        tester.check(again == plan, f"{words}: another plan for --batch {batch}.")
        small = json.loads(tester.run(f"{words} --json --batch 1")[1])["plan"]
        samples = [each["model"]["dimensions"]["batch"] * each.get("accumulation", 1) for each in (plan, small)]
        tester.check(samples[0] == samples[1], f"{words}: --batch 1 has {samples[1]} samples, and not {samples[0]}.")


def check_files_of_automodel(tester):
    """The GPUs that are typed divide its global batch; what is not predicted is named at its place."""
    file = {"recipe": "TrainFinetuneRecipeForNextTokenPrediction", "step_scheduler": {"global_batch_size": 64, "local_batch_size": 4},
            "model": {"_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
                      "pretrained_model_name_or_path": "Qwen/Qwen3-0.6B", "torch_dtype": "bf16"},
            "distributed": {"strategy": "fsdp2", "dp_size": "none"}, "dataset": {"_target_": "a.make_squad_dataset"},
            "loss_fn": {"_target_": "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"},
            "optimizer": {"_target_": "torch.optim.Adam", "weight_decay": 0}}  # fmt: skip
    (tester.folder / "automodel.yaml").write_text(json.dumps(file))
    machines = "--gpus 8 --gpu H100"
    code, _, err = tester.run(f"automodel.yaml {machines}")
    tester.check(code == 2 and "Write --seq N, the tokens of the longest row." in " ".join(err.split()), err)
    code, out, err = tester.run(f"automodel.yaml {machines} --seq 512 --json")
    tester.check(code == 0, err)
    plan = json.loads(out)["plan"]
    tester.check((plan["runtime"]["flavor"], plan["accumulation"], plan["model"]["dimensions"]["batch"]) == ("automodel", 2, 4), str(plan))
    tester.check("NeMo Automodel 0.7.0: fsdp-plan Qwen/Qwen3-0.6B" in " ".join((out + err).split()), out + err)
    (tester.folder / "one.yaml").write_text(json.dumps({**file, "step_scheduler": {"global_batch_size": 4, "local_batch_size": 4}}))
    code, out, err = tester.run("one.yaml --gpus 1 --gpu H100 --seq 512 --json")
    tester.check(code == 0 and json.loads(out)["plan"]["runtime"]["name"] == "pytorch-ddp", out + err)
    code, out, err = tester.run("automodel.yaml --gpus 1 --gpu H100 --seq 512")
    tester.check(code == 2 and "Micro-batches on one GPU" in " ".join(err.split()), out + err)
    for section, keys, said in (("distributed", {"ep_size": 8}, "/distributed/ep_size: It asks for expert parallelism"),
                                ("model", {"pretrained_model_name_or_path": "gpt2"}, "GPT2LMHeadModel was not compared with a run"),
                                ("distributed", {"activation_checkpointing": True}, "a checkpoint around each module of a block"),
                                ("packed_sequence", {"packed_sequence_size": 4096}, "It asks for packed rows")):
        wrong = {**file, section: {**file.get(section, {}), **keys}}
        (tester.folder / "wrong.yaml").write_text(json.dumps(wrong))
        code, out, err = tester.run(f"wrong.yaml {machines} --seq 512")
        tester.check(code == 2 and said in " ".join(err.split()), f"{section}: {out}{err}")


def check_cards_without_bf16(tester):
    """They are planned in fp16, and say so; what is asked for in bf16 says what that costs, and offers fp16."""
    code, out, _ = tester.run("llama3_2_1b --gpu T4 --gpus 4 --seq 512")
    tester.check(code == 0 and "T4 has no bf16 units: fp16 mixed, with a gradient scaler." in " ".join(out.split()), out)
    code, out, _ = tester.run("llama3_2_1b --gpu T4 --gpus 4 --seq 512 --precision mixed")
    text = " ".join(out.split())
    tester.check("T4 has no bf16 units: bf16 is timed at its fp32 rate, 8.1" in text, out)
    tester.check("--precision fp16-mixed" in text.split("note")[0], f"fp16 is not offered:\n{out}")
    tester.check("bf16 units" not in tester.run("llama3_2_1b --gpu L4 --gpus 4 --seq 512")[1], "An L4 has bf16.")
    tester.check("fp16-mixed" in tester.run("--help-all")[1], "fp16-mixed is not in the help.")


def check_a_plan_for_a_trainer_has_room(tester):
    """Among what a trainer can say, a slower plan with room to spare comes before a faster one without."""
    _, out, _ = tester.run("qwen3_8b --gpu 4090 --gpus 4 --seq 2048 --for accelerate --json")
    report = json.loads(out)
    tester.check(report["verdict"] == "fits" and "tight" not in report["memory"], "The plan has no room to spare.")


def check_a_trainer_is_offered_what_it_says(tester):
    """Suggestions of a plan for a trainer are there, and typed they give a plan for it that is as good as promised."""
    words = "qwen3_8b --gpu 4090 --gpus 4 --seq 2048 --for accelerate"
    report = json.loads(tester.run(f"{words} --json")[1])
    remedies = report["explain"]["remedies"]
    tester.check(len(remedies) > 2, f"Suggestions: {remedies}")
    flags = " ".join(each["flag"] for each in remedies)
    tester.check("--prefetch" not in flags and "8bit" not in flags, f"accelerate has no words for these: {flags}")
    good = [each for each in remedies if each["verdict"] == "fits" and "tight" not in each and each["kind"] != "machine"]
    tester.check(good and all(each["priced"] == "same plan" for each in good), f"{good}")
    for remedy in good[:3]:
        code, out, err = tester.run(f"{words} {remedy['flag']} --json")
        tester.check(code == 0, f"{remedy['flag']} ends with {code}: {err}")
        promised = report["time"]["step"] + remedy["delta_seconds"]
        step = json.loads(out)["time"]["step"] if code == 0 else 0
        tester.check(step <= promised * 1.02, f"{remedy['flag']} takes {step} s, and {promised} was promised.")
    remedies = json.loads(tester.run("llama3_2_1b --gpu L4 --gpus 4 --mem 6G --for deepspeed --json")[1])["explain"]["remedies"]
    tester.check(remedies and not any("--runtime" in each["flag"] for each in remedies), f"For DeepSpeed: {remedies}")


def check_a_release_is_kept(tester):
    """What accelerate of today cannot train is refused with a release that can, and `use` names that release."""
    words = "bert_large --gpu L4 --gpus 2 --for accelerate"
    code, out, err = tester.run(words)
    said = "Plan for a release without such units, --trainer-version 1.12.0 of accelerate"
    tester.check(code == 2 and out == "" and said in " ".join(err.split()) and err.count("error:") == 1, f"{words}: {code} {err}")
    code, out, _ = tester.run(f"{words} --trainer-version 1.12.0")
    tester.check(code == 0 and "export plan.json --to accelerate --trainer-version 1.12.0" in " ".join(out.split()), f"{words}: {code}\n{out}")


def check_a_world_size(tester):
    """As launchers say it."""
    for world, machines in (("16", "--gpus 8 --nodes 2"), ("4", "--gpus 4"), ("8 --gpus 4", "--gpus 4 --nodes 2")):
        for words in ("gpt2 --gpu H100 --json", "fit gpt2 --gpu H100 --json", "clock all_gather 256M --gpu H100 --json"):
            tester.check(tester.run(f"{words} --world-size {world}")[:2] == tester.run(f"{words} {machines}")[:2],
                         f"{words}: --world-size {world} is not {machines}.")
    of_cluster = "gpt2 --cluster AWS-g5.12xlarge --quiet"
    tester.check(tester.run(f"{of_cluster} --num-processes 8") == tester.run(f"{of_cluster} --nodes 2"), "A cluster has nodes of its own.")


def check_that_a_no_without_proof_is_a_no(tester):
    """Nothing is broken on this machine: a bound of the search is, and that is said."""
    code, out, err = tester.run("gpt2 --gpus 4 --mem 16G --batch 1000000 --quiet")
    is_told = "Not proven: " in " ".join(out.split())
    tester.check(code == 1 and out.startswith("DOES NOT FIT" if is_told else "NO PLAN FITS") and err == "",
                 f"A no ends with {code}:\n{out}{err}")


def check_bounds_of_fsdp1_with_offload(tester):
    command = "qwen3_4b --gpu H100-SXM --gpus 2 --runtime fsdp1 --mem 24G --seq 1024 --batch 2 --json"
    search = json.loads(tester.run(command)[1])["search"]
    tester.check(search["optimality_gap"] is not None, f"Not proven: {search['notes']}")


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        check_names_of_other_programs(tester)
        check_a_printed_batch_can_be_typed_back(tester)
        check_files_of_automodel(tester)
        check_cards_without_bf16(tester)
        check_a_plan_for_a_trainer_has_room(tester)
        check_a_trainer_is_offered_what_it_says(tester)
        check_a_release_is_kept(tester)
        check_a_world_size(tester)
        check_that_a_no_without_proof_is_a_no(tester)
        check_bounds_of_fsdp1_with_offload(tester)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))

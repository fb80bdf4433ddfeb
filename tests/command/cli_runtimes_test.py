#!/usr/bin/env python3
"""The other frameworks in the place of FSDP2, and all of them beside each other.

usage: cli_runtimes_test.py PROJECT_ROOT BINARY
"""

import json
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_test import Tester  # noqa: E402

WORDS = "gpt2 --gpus 2 --gpu A100-40G --batch 2 --seq 512"


def check_all(tester):
    """What each of them sends is counted by hand."""
    code, out, _ = tester.run(f"{WORDS} --precision fp32 --runtime all --json")
    rows = {row["runtime"]: row for row in json.loads(out)["runtimes"]}
    tester.check(code == 0 and set(rows) == {"fsdp2", "fsdp1", "ddp", "zero1", "zero2", "zero3", "simple_fsdp"}, f"Rows {sorted(rows)}.")
    # By hand: all gradients in fp32 go around a ring of two once to be added and once to be known.
    tester.check(rows["ddp"]["sent_per_gpu_bytes"] == 4 * 124439808, f"DDP sends {rows['ddp']['sent_per_gpu_bytes']}.")
    # As DDP, then an all-gather of the parameters, and a norm.
    for stage in ("zero1", "zero2"):
        sent = rows[stage]["sent_per_gpu_bytes"]
        tester.check(sent == (4 + 2) * 124439808 + 4, f"{stage} sends {sent}.")
    # Letting parameters go takes as good as no longer, and needs less: each is gathered for the forward and the backward, the
    # embedding for the head as well, and norms and biases once; each gradient is scattered once; a norm in fp64.
    gathered = 2 * 124439808 + 2 * 50257 * 768 - (12 * 9984 + 1536)
    tester.check(rows["zero3"]["sent_per_gpu_bytes"] == 2 * (gathered + 124439808) + 8, f"zero3 sends {rows['zero3']}.")
    tester.check("max_reuse_distance 0" in rows["zero3"]["plan"], str(rows["zero3"]))
    tester.check(rows["fsdp1"]["device_peak_bytes"] != rows["fsdp2"]["device_peak_bytes"], "FSDP1 is FSDP2.")
    # By hand: whoever reads a parameter gathers it, and its gradient is cut; the embedding is read by the head as well, and has a row more
    # in each; a norm of each of 148 parameters.
    one = WORDS.replace("--batch 2", "--batch 1")  # Whole copies need 3 % more, and are faster: with two they are preferred.
    code, out, _ = tester.run(f"{one} --precision fp32 --runtime simple_fsdp,ddp --activation-checkpointing none --json")
    read = 124439808 + 50257 * 768 + 2 * 768
    sent = {row["runtime"]: row["sent_per_gpu_bytes"] for row in json.loads(out)["runtimes"]}["simple_fsdp"]
    tester.check(sent == 2 * (4 * read // 2) + 4 * 148, f"simple_fsdp sends {sent}.")


def check_deepspeed(tester):
    """Its buffer and the host's memory decide what fits."""
    # The buffer of DeepSpeed's default is 1 GB, which does not fit here; a smaller one does. A file without it means the default.
    small = "gpt2 --gpus 2 --mem 2700M --batch 1 --accumulate 1 --seq 256 --activation-checkpointing none"
    code, out, err = tester.run(f"{small} --precision mixed --runtime zero2 -o zero2.json")
    chosen = re.search(r"ZeRO-2 \(reduce_bucket_size (\d+)\)", out)
    tester.check(code == 0 and chosen is not None and int(chosen[1]) in (5000000, 50000000), out + err)
    written = json.loads(tester.run("export zero2.json --to deepspeed")[1])
    tester.check(str(written["zero_optimization"]["reduce_bucket_size"]) == chosen[1], str(written))
    for buffer, wanted in (({}, 1), ({"reduce_bucket_size": 50000000}, 0), ({"reduce_bucket_size": 500000000}, 1)):
        config = {"zero_optimization": {"stage": 2, **buffer}, "bf16": {"enabled": True}}
        (tester.folder / "ds.json").write_text(json.dumps(config), encoding="utf-8")
        code, out, err = tester.run(f"{small} --deepspeed ds.json --strict")
        tester.check(code == wanted, f"{buffer}: {code} {out}{err}")
    # What does not fit on four GPUs fits on eight, over all of which it is cut then.
    large = "llama3_1_8b --gpus 4 --gpu \"H100 SXM\" --runtime zero2 --precision mixed"
    out = tester.run(f"{large} --offload no --mem 62G --verbose")[1]
    tester.check("--gpus 8" in out and "--runtime fsdp2" in out, out)
    # Or with the optimizer on the host, as far as that can hold it.
    code, out, _ = tester.run(f"{large} --offload yes -o host.json")
    tester.check(code == 0 and "CPU offload" in out and "DeepSpeedCPUAdam" in out and "host memory" in out, out)
    written = json.loads(tester.run("export host.json --to deepspeed")[1])["zero_optimization"]
    tester.check(written["offload_optimizer"] == {"device": "cpu", "pin_memory": True}, str(written))
    code, out, _ = tester.run(f"{large} --host-mem 64G --offload yes")
    tester.check(code == 1 and "host memory" in out, out)
    out = tester.run(f"{WORDS} --precision mixed --runtime fsdp2,ddp")[1]
    tester.check("Only FSDP2 can train this as asked." in out and "DDP computes in the dtype" in out, out)


def check_ddp(tester):
    """A plan of DDP is planned, exported and refused by what has no word for it."""
    code, out, err = tester.run(f"{WORDS} --precision fp32 --runtime ddp --accumulate 4 --gradient-sync last "
                                "--activation-checkpointing none -o ddp.json")
    tester.check(code == 0 and "DDP (gradient_as_bucket_view=True)" in out and "fully_shard" not in out, out + err)
    plan = json.loads((tester.folder / "ddp.json").read_text(encoding="utf-8"))
    tester.check(plan["runtime"]["name"] == "pytorch-ddp" and plan["mesh"] == {"replicate": 2, "shard": 1}, str(plan))
    code, out, _ = tester.run("export ddp.json --to ddp")
    compile(out, "ddp.py", "exec")
    tester.check(code == 0 and "DistributedDataParallel(model, gradient_as_bucket_view=True)" in out
                 and "with model.no_sync()" in out, out)
    for refused in ("export ddp.json --to fsdp2", "export ddp.json --to fsdp1", "export ddp.json --to accelerate",
                    "execute host.json", f"{WORDS} --precision fp32 --runtime dpd", f"{WORDS} --precision mixed --runtime ddp",
                    f"{WORDS} --precision fp32 --runtime ddp --wrap blocks --offload yes",
                    f"{WORDS} --runtime fsdp1 --reshard keep-last:2", "gpt2 --gpu A100-40G --gpus 2,4 --runtime all"):
        code, out, err = tester.run(refused)
        tester.check(code == 2 and err.startswith("error: ") and not out, f"{refused}: {code} {out}{err}")
    plan["mesh"] = {"replicate": 1, "shard": 2}
    (tester.folder / "ddp.json").write_text(json.dumps(plan), encoding="utf-8")
    code, _, err = tester.run("simulate ddp.json")
    tester.check(code == 2 and "DDP does not shard" in err, err)
    (tester.folder / "ddp.json").unlink()


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        for check in (check_all, check_deepspeed, check_ddp):
            check(tester)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))

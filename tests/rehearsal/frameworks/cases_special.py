"""Cases with formulas of their own: DeepSpeed's stages, torchtitan's trainer, the published Qwen3-TTS step."""

from __future__ import annotations

import expectations as expect
import shapes
from cases import BF16, MIB, MIXED, SMOL, TORCHRUN, Case
from expectations import H100_WORKSPACES, held, near

GIB = 1 << 30


def deepspeed() -> list[Case]:
    """bf16 with fp32 master weights. In the optimizer's step a rank holds, in bytes a parameter: 2 (weights) + 2 (gradients) and
    4 + 4 + 4 + 4 in fp32 (weights, gradients, two moments); stage 1 and 2 cut the fp32 part and free the 16-bit gradients,
    stage 3 cuts all. With the optimizer on the CPU the fp32 part is there. Stage 3 keeps a bucket of 5e8 gradients.
    """
    model, ranks = shapes.SMOLLM2_135M, 8
    n = model.elements
    bucket = 2 * 500_000_000
    gather = {("all_gather", "bfloat16"): (1, n), ("all_reduce", "bfloat16"): (1, n)}
    # The whole model is below max_live_parameters (1e9): it is gathered once a step, in parts as the modules fetch them.
    stage3 = {("all_gather", "bfloat16"): (None, n), ("reduce_scatter", "bfloat16"): (1, n)}
    paper = "arXiv:1910.02054, table 1, for mixed precision in bf16, and workspaces"
    table = [
        ("zero0", 0, False, {("all_reduce", "bfloat16"): (1, n)}, 20 * n, 80 * MIB),
        ("zero1", 1, False, gather, (2 + 16 / ranks) * n, MIB),
        ("zero2", 2, False, gather, (2 + 16 / ranks) * n, MIB),
        ("zero2_cpu_optimizer", 2, True, gather, 2 * n, 60 * MIB),
        ("zero3", 3, False, stage3, 20 / ranks * n + bucket, MIB),
        ("zero3_cpu_optimizer", 3, True, stage3, 2 / ranks * n + bucket, MIB),
        ("zero3_cpu_all", 3, True, stage3, bucket, MIB),
    ]
    script = ["{here}/deepspeed_zero.py", SMOL, "--deepspeed_config"]
    rows = []
    for name, stage, offload, traffic, states, above in table:
        keys = {"zero_stage": stage, "offload": offload, "param_dtype": "bfloat16", "version": "0.19.8"}
        figures = [held(states, H100_WORKSPACES + above, paper)]
        title = f"DeepSpeed ZeRO-{stage}" + {"_optimizer": ", optimizer on the CPU", "_all": ", all on the CPU"}.get(
            name.partition("_cpu")[2], "")  # fmt: skip
        rows.append(Case(f"deepspeed_{name}", title, "frameworks", ["deepspeed"],
                         [*TORCHRUN, *script, f"{{here}}/config/{name}.json"], f"DeepSpeed ZeRO-{stage}", model, ranks, 0,
                         traffic, figures, keys, dtype="bfloat16"))  # fmt: skip
        if name == "zero3":
            rows.append(Case("deepspeed_launcher", "DeepSpeed ZeRO-3, its own launcher", "frameworks", ["deepspeed"],
                             ["deepspeed", "--num_gpus", "8", *script, f"{{here}}/config/{name}.json"], "DeepSpeed ZeRO-3",
                             model, ranks, 0, traffic, figures, keys, dtype="bfloat16"))  # fmt: skip
    return rows


def torchtitan() -> list[Case]:
    """Llama 3.1 8B. Units: the embedding, each block, norm and head together; the last is not gathered again, and the root has
    no parameters of its own. Published: torchtitan's benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3, eager, on H100s
    with 95.04 GiB; its PyTorch was of December 2024.
    """
    model, rows = shapes.LLAMA_8B, []
    embedding, norm, head = model.root
    last = shapes.Model([norm, head], [[embedding], *model.units])
    for gpus, published in [(8, 82.4), (128, 67.0)]:
        nodes = [] if gpus == 8 else ["--nnodes", str(gpus // 8)]
        command = [*TORCHRUN, *nodes, "-m", "torchtitan.train", "--job.config_file", "{here}/config/llama3_8b.toml"]
        rows.append(Case(f"torchtitan_{gpus}", f"torchtitan Llama 3.1 8B, {gpus} GPUs", "torchtitan", ["torchtitan"], command,
                         "FSDP2", model, gpus, 34, expect.fsdp2(last, gpus),
                         [near("memory.reserved_peak_bytes", published * GIB, 0.02, "torchtitan's published benchmark")], MIXED,
                         options=["--mem", "95.04GiB"], before=["{here}/titan_assets.py"],
                         optimizers=("AdamW", "OptimizersContainer")))  # fmt: skip
    return rows


def qwen_tts() -> list[Case]:
    """Units that follow the model, and those that _no_split_modules names (docs/models/qwen3_tts.md). What gets no gradient is
    gathered with the root and not reduced. The codec embedding is used twice in forward and so gathered twice.
    """
    model, ranks = shapes.qwen_tts(), 4
    total = 1_928_677_440
    idle = total - model.elements
    text, codec = 151936 * 2048, 3072 * 2048
    layers = sum(shapes.elements(unit) for unit in model.units)
    predictor = sum(shapes.elements(unit) for unit in model.units[28:])
    good_root = model.elements - layers - text - codec
    trap_root = model.elements - predictor
    rows = []
    for units, precision, options, allocated, reserved in [
        ("good", "bf16", [], None, None),
        ("good", "mixed", [], 8.89, 13.4),
        ("trap", "bf16", [], None, 20.4),
        ("trap", "mixed", ["--gpu", "H100", "--mem", "16GiB"], None, None),
    ]:
        reduce = "bfloat16" if precision == "bf16" else "float32"
        if units == "good":
            # Forward gathers all units, and the codec embedding again; backward all but the root.
            gathers = (37 + 35, total + codec + layers + text + codec)
            reduces = (36, model.elements)
            assert (gathers[1] * 2, reduces[1] * 2) == (7_480_976_000, 3_816_567_296)
        else:
            gathers, reduces = (6 + 5, total + predictor), (6, model.elements)
            assert trap_root + idle == 1_850_022_720
        source = "an earlier rehearsal of the same step with another stub and another script"
        figures = [near("memory.allocated_peak_bytes", allocated * GIB, 0.01, source)] if allocated else []
        figures += [near("memory.reserved_peak_bytes", reserved * GIB, 0.01, source)] if reserved else []
        rows.append(Case(f"qwen_tts_{units}_{precision}", f"Qwen3-TTS 1.7B, units {units}, {precision}", "qwen-tts",
                         ["qwen-tts", "transformers"],
                         ["torchrun", "--nproc-per-node", "4", "{here}/qwen_tts_step.py", "{here}/models/qwen3-tts-1.7b",
                          "--units", units, "--precision", precision], "FSDP2", model, ranks, 36 if units == "good" else 6,
                         {("all_gather", "bfloat16"): gathers, ("reduce_scatter", reduce): reduces}, figures,
                         BF16 | MIXED if precision == "mixed" else {},
                         dtype="bfloat16" if precision == "bf16" else "float32", options=options,
                         runs_out=("backward", 2) if options else None, parameters=total))  # fmt: skip
    assert good_root + idle == 123_158_336
    return rows

"""Published runs, as data (tests/golden/published_runs.csv), and what fsdp-plan predicts for each.

A row is predicted from what its source states. One rule fills in the rest, and looks at no published figure:

* The model code is that of the source at the time of the run, read in its repository; CODES has what differs from the newest.
* Arguments of FSDP1 and DDP are PyTorch's defaults, but use_orig_params=True, as all of these projects pass.
* A unit is a block, the root is the last one; gradients are clipped at 1; AdamW is foreach where no implementation is named,
  and for_loop for Composer's DecoupledAdamW, which is one (composer/optim/decoupled_weight_decay.py).
* bf16 of FSDP1 and FSDP2 is their mixed precision. Autocast is not predicted; such rows stand apart.
* What a source's trainer computes beside the step is added to the time alone (metrics_seconds).
* Padding to the longest sample counts: a batch has the longest sequence that its source allows.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
import sys
from typing import Any, cast

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import command

GOLDEN = command.ROOT / "tests" / "golden" / "published_runs.csv"
GIB = 2**30

# What the model code of a source does, as `runtime` of a plan says it.
_TITAN = {"flavor": "torchtitan"}
_WRITTEN_OUT = {"rms_norm": "written_out", "repeat_kv": True}  # Until torchtitan 3b39d7ab0 (2025-03) and ff0829c10 (2026-01).
_UNSLOTH = {"rms_norm": "fused", "cross_entropy": "flash_attn", "upcast_logits": False, "float_logits": True, "use_cache": False}
_LIT_LLAMA = {"rotary": "complex", "upcast_logits": False, "use_cache": False}
CODES: dict[str, dict[str, Any]] = {
    "transformers": {"flavor": "transformers"},
    # self.output(h).float(), and the loop names it until the next batch: until e29b6b4d4 (2024-06) and e10cb9494 (2024-10).
    "torchtitan-2024-03": {**_TITAN, "implementations": {**_WRITTEN_OUT, "float_logits": True, "keep_logits": True}},
    "torchtitan-2024-08": {**_TITAN, "implementations": {**_WRITTEN_OUT, "float_logits": True}},
    "torchtitan-2024-12": {**_TITAN, "implementations": _WRITTEN_OUT},
    "torchtitan-2025": {**_TITAN, "implementations": {"repeat_kv": True}},
    "torchtitan": _TITAN,
    # MPT's loss_fn is fused_crossentropy unless a configuration says otherwise: flash-attn's, on logits in bf16. Composer's
    # state.outputs names the logits until the next forward pass has made others.
    "llm-foundry": {"flavor": "transformers", "implementations": {
        "cross_entropy": "flash_attn", "upcast_logits": False, "keep_logits": True, "use_cache": False}},
    "litgpt": {"flavor": "transformers", "implementations": {"upcast_logits": False, "repeat_kv": True, "use_cache": False}},
    "torchtune": {"flavor": "transformers",
                  "implementations": {"rotary": "complex", "float_logits": True, "repeat_kv": True, "use_cache": False}},
    # Their weights are cast by autocast, of which the planner knows nothing: FSDP's mixed precision in its place.
    "autocast": {"flavor": "transformers"},
    "autocast-eager": {"flavor": "transformers", "implementations": {"attention": "eager", "use_cache": False}},
    # transformers 4.48, and with the norm, the rotation and the loss of unsloth's kernels, on logits.float().
    "fms": {"flavor": "transformers"},
    "fms-fast": {"flavor": "transformers", "implementations": _UNSLOTH},
    "autocast-fast": {"flavor": "transformers", "implementations": _UNSLOTH},
    # Before and after its pull request #389, which passed limit_all_gathers=True: PyTorch 2.0's default was False.
    "lit-llama-2023-05": {"flavor": "transformers", "implementations": _LIT_LLAMA},
    "lit-llama": {"flavor": "transformers", "implementations": _LIT_LLAMA},
    "prime-rl": {"flavor": "transformers", "implementations": {"float_logits": True, "use_cache": False}},
}  # fmt: skip
# Two metrics, LanguageCrossEntropy and LanguagePerplexity (use_train_metrics, on unless a configuration says otherwise), that Composer
# computes after each backward pass, under autocast: logits of 2 bytes are cast to fp32, and log_softmax reads and writes those.
METRICS_BYTES_PER_LOGIT = 2 * ((2 + 4) + (4 + 4))
CARDS = {"A100 40GB SXM": "a100_40gb_sxm", "A100 80GB SXM": "a100_80gb_sxm", "H100 SXM": "h100_80gb_sxm"}
ANSWERS = {"": "fits", "margin": "tight: within the margin", "streams": "tight: streams may hold more", "cache_flushes": "tight: empties its cache"}
TIED = ("FineWeb-ablation-1.7B", "Qwen3-0.6B", "Qwen3-4B", "Llama-3.2-3B", "PowerLM-3b")


@dataclasses.dataclass(frozen=True)
class Run:
    """One line of the golden file. Sizes of the model, the plan, the machine, and what was published: 0 where it was not."""

    source: str
    model: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    gpu: str
    memory: str  # Memory of a GPU, where it is not that of the library.
    gpus_per_node: int
    nodes: int
    code: str
    runtime: str  # fsdp2, fsdp1 or ddp, which on one GPU is none.
    compiled: str  # yes: by torch.compile, which is predicted as if it were not.
    replicate: int
    parameter_dtype: str
    reduce_dtype: str
    optimizer: str
    checkpointing: str
    micro_batch: int
    accumulation: int
    seq: int
    tokens_per_second_per_gpu: float
    reserved_gib: float
    allocated_gib: float
    device_gib: float  # What nvidia-smi saw at most, less what was in use before.
    outcome: str  # ran, or out of memory.

    @property
    def project(self) -> str:
        """"pytorch/torchtitan": whose figures they are."""
        return self.source.split()[0]

    @property
    def table(self) -> str:
        """"torchtitan", or of llm-foundry, which has three tables of other cards and times, "llm-foundry, H100 SXM"."""
        name = self.project.split("/")[1]
        return f"{name}, {self.gpu}" if name == "llm-foundry" else name

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.nodes

    @property
    def is_timed(self) -> bool:
        return self.tokens_per_second_per_gpu > 0

    @property
    def is_eager(self) -> bool:
        return self.compiled == "no"

    @property
    def is_autocast(self) -> bool:
        return self.code.startswith("autocast")

    @property
    def group(self) -> str:
        nodes = "one node" if self.nodes == 1 else "several nodes"
        return f"{self.gpu}, {self.project.split('/')[1]}, {self.runtime.upper()}, {nodes}"

    @property
    def name(self) -> str:
        """"MPT-7b, 8 x H100 SXM, FSDP1, full, 2 x 8 x 2048": accumulation, batch, sequence."""
        runtime = "one GPU" if self.gpus == 1 else self.runtime.upper() if self.replicate == 1 else f"HSDP {self.replicate}"
        tokens = f"{self.accumulation} x {self.micro_batch} x {self.seq}"
        return f"{self.model}, {self.gpus} x {self.gpu}, {runtime}, checkpointing {self.checkpointing}, {tokens}"

    def spec(self) -> dict[str, Any]:
        return _mpt(self) if self.model.startswith("MPT") else _llama(self)

    def plan(self, spec: str) -> dict[str, Any]:
        blocks = "transformer.blocks" if self.model.startswith("MPT") else "model.layers"
        row = f"{blocks}.{{0..{self.layers - 1}}}"
        reshard: Any = True if self.runtime == "fsdp1" else "default"
        checkpointed = [] if self.checkpointing == "none" else [{"module": row, "mode": self.checkpointing}]
        plan: dict[str, Any] = {
            "format_version": "1.0",
            "model": {"name": self.model, "file": spec, "dimensions": {"batch": self.micro_batch, "seq": self.seq}},
            "mesh": {"replicate": self.replicate, "shard": self.gpus // self.replicate},
            "units": [{"modules": [row], "modules_per_unit": 1, "reshard_after_forward": reshard}, {"modules": [""]}],
            "parameter_dtype": self.parameter_dtype,
            "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": self.reduce_dtype},
            "activation_checkpointing": {"modules": checkpointed},
            "accumulation": self.accumulation,
            "optimizer": {"implementation": self.optimizer, "weight_decay": 0.1, "clip_grad_norm": 1.0},
            "runtime": {**CODES[self.code], "name": f"pytorch-{self.runtime}"},
        }
        if self.runtime == "fsdp1":
            plan["fsdp1"] = {"use_orig_params": True, "limit_all_gathers": self.code != "lit-llama-2023-05"}
        if self.runtime == "ddp":
            plan |= {"mesh": {"replicate": self.gpus, "shard": 1}, "units": [{"modules": [""]}],
                     "sync_every_micro_batch": False, "ddp": {"gradient_as_bucket_view": False}}  # fmt: skip
            del plan["mixed_precision"]
        return plan


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Seconds of one step, with the printed band, metrics of the source's trainer among them; bytes; and whether it runs."""

    run: Run
    step: float
    low: float
    high: float
    reserved: int
    allocated: int
    device: int
    budget: int
    runs: bool
    tight: str  # Why it has no room to spare, where it runs: margin, streams or cache_flushes; else "".
    margin: int
    held: int  # In the margin: what streams may hold.
    flushes: float  # Seconds of a step, at most, that emptying the cache takes.

    @property
    def published_step(self) -> float:
        return self.run.micro_batch * self.run.accumulation * self.run.seq / self.run.tokens_per_second_per_gpu

    @property
    def ratio(self) -> float:
        """Predicted tokens a second over published: above 1, the prediction is too fast."""
        return self.published_step / self.step

    @property
    def is_inside(self) -> bool:
        return self.low <= self.published_step <= self.high

    @property
    def reserved_error(self) -> float:
        return self.reserved / GIB / self.run.reserved_gib - 1

    @property
    def allocated_error(self) -> float:
        return self.allocated / GIB / self.run.allocated_gib - 1

    @property
    def kind(self) -> str:
        """What the margin goes by."""
        return {"fsdp1": "FSDP1, beside what streams may hold", "ddp": "DDP and one GPU"}.get(self.run.runtime, self.run.runtime.upper())

    @property
    def over(self) -> float:
        """What was taken beyond the peak that is predicted and what streams may hold, as a share of what is reserved."""
        taken, predicted = (self.run.device_gib, self.device) if self.run.device_gib else (self.run.reserved_gib, self.reserved)
        return (taken * GIB - predicted - self.held) / self.reserved

    @property
    def has_room(self) -> bool:
        return self.runs and not self.tight

    @property
    def answer(self) -> str:
        """The verdict, and why one is tight."""
        return ANSWERS[self.tight] if self.runs else "does not fit"


def runs(path: pathlib.Path = GOLDEN) -> list[Run]:
    types = {field.name: {"int": int, "float": float}.get(str(field.type), str) for field in dataclasses.fields(Run)}
    with path.open(encoding="utf-8", newline="") as lines:
        return [Run(**{name: types[name](text or ("0" if types[name] is not str else "")) for name, text in row.items()})
                for row in csv.DictReader(lines)]  # fmt: skip


def card_of(gpu: str) -> dict[str, Any]:
    text = (command.ROOT / "model_specs" / "clusters" / "gpus" / f"{CARDS[gpu]}.json").read_text(encoding="utf-8")
    return cast(dict[str, Any], json.loads(text))


def metrics_seconds(run: Run, card: dict[str, Any] | None) -> float:
    """What a plan cannot say of the step that a source measured: its trainer's metrics, at the card's rate of elementwise kernels."""
    if run.code != "llm-foundry":
        return 0.0
    card = card or card_of(run.gpu)
    rate = float(card["memory_bandwidth"]["value"].removesuffix("GB/s")) * 1e9 * card["achievable_bandwidth"]["value"]
    return run.accumulation * run.micro_batch * run.seq * run.vocabulary * METRICS_BYTES_PER_LOGIT / rate


def predict(program: pathlib.Path, run: Run, folder: pathlib.Path, card: dict[str, Any] | None = None, spread: float | None = None) -> Prediction:
    """Asks `fsdp-plan simulate`. `card`: another than that of the library; `spread`: how far nodes differ, as a share."""
    spec, plan = folder / "spec.json", folder / "plan.json"
    spec.write_text(json.dumps(run.spec()), encoding="utf-8")
    plan.write_text(json.dumps(run.plan(str(spec))), encoding="utf-8")
    words = ["--gpu", run.gpu, "--gpus", str(run.gpus_per_node), "--nodes", str(run.nodes)]
    if card is not None:
        cluster = {"format_version": "1.0", "kind": "cluster", "name": "borrowed", "gpu": card, "gpus_per_node": run.gpus_per_node,
                   "nodes": run.nodes}  # fmt: skip
        (folder / "cluster.json").write_text(json.dumps(cluster), encoding="utf-8")
        words = ["--cluster", str(folder / "cluster.json")]
    words = [*words, "--mem", run.memory] if run.memory else words
    words = words if spread is None else [*words, "--node-spread", str(spread)]
    report = command.answer(program, "simulate", plan, *words, "--json")
    memory, metrics = report["memory"], metrics_seconds(run, card)
    step, low, high = (seconds + metrics for seconds in (report["time"]["step"], *(report["time"]["uncertainty"][k] for k in ("low", "high"))))
    return Prediction(run, step, low, high, memory["reserved_peak_bytes"],
                      memory["allocated_peak_bytes"], memory["device_peak_bytes"], memory["budget_bytes"],
                      report["verdict"] == "fits", memory.get("tight", ""), memory["margin_bytes"],
                      memory.get("held_bytes", 0), memory.get("cache_flush_time", 0.0))  # fmt: skip


def _spec(run: Run, modules: list[dict[str, Any]], tied: dict[str, str]) -> dict[str, Any]:
    tokens = {"shape": ["batch", "seq"], "dtype": "int64"}
    return {"format_version": "1.0", "name": run.model, "source": run.source, "dtype": "float32",
            "dimensions": {"batch": 1, "seq": run.seq}, "inputs": {"input_ids": tokens, "labels": tokens},
            "modules": modules, "tied": tied, "recipes": {"pretrain": {"description": "As published.", "optimizer": {"kind": "adamw"}}}}  # fmt: skip


def _mpt(run: Run) -> dict[str, Any]:
    """MosaicML's MPT: GPT-2's shape with one fused projection, GELU, learned positions and a tied head."""
    width, head = run.hidden, run.hidden // run.heads
    heads = ["batch", "seq", run.heads, head]
    layer = [{"op": "layer_norm", "module": "norm_1", "inputs": ["hidden"]},
             {"op": "linear", "module": "attn.Wqkv", "out_features": 3 * width},
             {"op": "split", "dim": -1, "parts": 3, "outputs": ["q", "k", "v"]}]
    layer += [{"op": "reshape", "inputs": [name], "shape": heads, "outputs": [f"{name}_heads"]} for name in "qkv"]
    layer += [{"op": "attention", "inputs": ["q_heads", "k_heads", "v_heads"], "causal": True},
              {"op": "linear", "module": "attn.out_proj", "out_features": width, "outputs": ["mixed"]},
              {"op": "add", "inputs": ["hidden", "mixed"], "outputs": ["middle"]},
              {"op": "layer_norm", "module": "norm_2", "inputs": ["middle"]},
              {"op": "linear", "module": "ffn.up_proj", "out_features": run.intermediate},
              {"op": "gelu"},
              {"op": "linear", "module": "ffn.down_proj", "out_features": width, "outputs": ["fed"]},
              {"op": "add", "inputs": ["middle", "fed"], "outputs": ["hidden"]}]  # fmt: skip
    return _spec(run, [
        {"name": "transformer", "block": "gpt2_embeddings", "vocab_size": run.vocabulary, "max_positions": run.seq, "hidden_size": width},
        {"name": f"transformer.blocks.{{0..{run.layers - 1}}}", "class": "MPTBlock", "ops": layer},
        {"name": "transformer.norm_f", "block": "layer_norm"},
        {"name": "lm_head", "block": "lm_head", "vocab_size": run.vocabulary},
        {"name": "", "block": "cross_entropy"},
    ], {"lm_head.weight": "transformer.wte.weight"})  # fmt: skip


def _llama(run: Run) -> dict[str, Any]:
    head = 128 if run.model.startswith("Qwen3") else run.hidden // run.heads
    layer = {"num_attention_heads": run.heads, "num_key_value_heads": run.kv_heads, "intermediate_size": run.intermediate}
    layer |= {"head_dim": head, "qk_norm": True} if run.model.startswith("Qwen3") else {}
    # Others get labels that are shifted.
    shift = {"shift": True} if run.code in ("transformers", "litgpt", "fms", "fms-fast", "autocast-fast", "autocast-eager") else {}
    return _spec(run, [
        {"name": "model.embed_tokens", "block": "token_embedding", "vocab_size": run.vocabulary, "hidden_size": run.hidden},
        {"name": "model.rotary_emb", "block": "rotary_table", "head_dim": head},
        {"name": f"model.layers.{{0..{run.layers - 1}}}", "block": "decoder_layer", **layer},
        {"name": "model.norm", "block": "rms_norm"},
        {"name": "lm_head", "block": "lm_head", "vocab_size": run.vocabulary},
        {"name": "", "block": "cross_entropy", **shift},
    ], {"lm_head.weight": "model.embed_tokens.weight"} if run.model in TIED else {})  # fmt: skip

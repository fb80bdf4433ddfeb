"""Published runs of FSDP, as data (tests/golden/published_runs.csv), and what fsdp-plan predicts for each.

A run of FSDP1 is predicted as FSDP2 with the same units: both gather and reduce the same bytes around the same kernels.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import command

GOLDEN = command.ROOT / "tests" / "golden" / "published_runs.csv"


@dataclasses.dataclass(frozen=True)
class Run:
    """One line of the golden file. Sizes of the model, the plan, the machine, and the tokens a second of one GPU."""

    source: str
    model: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    gpu: str
    gpus_per_node: int
    nodes: int
    fsdp: int
    replicate: int
    parameter_dtype: str
    reduce_dtype: str
    optimizer: str
    checkpointing: str
    micro_batch: int
    accumulation: int
    seq: int
    tokens_per_second_per_gpu: float

    @property
    def project(self) -> str:
        """"pytorch/torchtitan": whose figures they are."""
        return self.source.split()[0]

    @property
    def group(self) -> str:
        nodes = "one node" if self.nodes == 1 else "several nodes"
        return f"{self.gpu}, {self.project.split('/')[1]}, FSDP{self.fsdp}, {nodes}"

    def spec(self) -> dict[str, Any]:
        return _mpt(self) if self.model.startswith("MPT") else _llama(self)

    def plan(self, spec: str) -> dict[str, Any]:
        blocks = "transformer.blocks" if self.model.startswith("MPT") else "model.layers"
        row = f"{blocks}.{{0..{self.layers - 1}}}"
        reshard: Any = True if self.fsdp == 1 else "default"
        checkpointed = [] if self.checkpointing == "none" else [{"module": row, "mode": self.checkpointing}]
        return {
            "format_version": "1.0",
            "model": {"name": self.model, "file": spec, "dimensions": {"batch": self.micro_batch, "seq": self.seq}},
            "mesh": {"replicate": self.replicate, "shard": self.gpus_per_node * self.nodes // self.replicate},
            "units": [{"modules": [row], "modules_per_unit": 1, "reshard_after_forward": reshard}, {"modules": [""]}],
            "parameter_dtype": self.parameter_dtype,
            "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": self.reduce_dtype},
            "activation_checkpointing": {"modules": checkpointed},
            "accumulation": self.accumulation,
            "optimizer": {"implementation": self.optimizer, "weight_decay": 0.1, "clip_grad_norm": 1.0},
            "runtime": {"flavor": "torchtitan" if self.project == "pytorch/torchtitan" else "transformers"},
        }


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Seconds of one step, with the printed band."""

    run: Run
    step: float
    low: float
    high: float

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


def runs(path: pathlib.Path = GOLDEN) -> list[Run]:
    types = {field.name: {"int": int, "float": float}.get(str(field.type), str) for field in dataclasses.fields(Run)}
    with path.open(encoding="utf-8", newline="") as lines:
        return [Run(**{name: types[name](text) for name, text in row.items()}) for row in csv.DictReader(lines)]


def predict(program: pathlib.Path, run: Run, folder: pathlib.Path, machine: list[str] | None = None) -> Prediction:
    """Asks `fsdp-plan simulate`. `machine`: other words than `--gpu` and its kin."""
    spec, plan = folder / "spec.json", folder / "plan.json"
    spec.write_text(json.dumps(run.spec()), encoding="utf-8")
    plan.write_text(json.dumps(run.plan(str(spec))), encoding="utf-8")
    words = machine or ["--gpu", run.gpu, "--gpus", str(run.gpus_per_node), "--nodes", str(run.nodes)]
    time = command.answer(program, "simulate", plan, *words, "--json")["time"]
    return Prediction(run, time["step"], time["uncertainty"]["low"], time["uncertainty"]["high"])


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
        {"name": "", "block": "cross_entropy", "shift": True},
    ], {"lm_head.weight": "transformer.wte.weight"})  # fmt: skip


def _llama(run: Run) -> dict[str, Any]:
    return _spec(run, [
        {"name": "model.embed_tokens", "block": "token_embedding", "vocab_size": run.vocabulary, "hidden_size": run.hidden},
        {"name": "model.rotary_emb", "block": "rotary_table", "head_dim": run.hidden // run.heads},
        {"name": f"model.layers.{{0..{run.layers - 1}}}", "block": "decoder_layer", "num_attention_heads": run.heads,
         "num_key_value_heads": run.kv_heads, "intermediate_size": run.intermediate},
        {"name": "model.norm", "block": "rms_norm"},
        {"name": "lm_head", "block": "lm_head", "vocab_size": run.vocabulary},
        {"name": "", "block": "cross_entropy", "shift": True},
    ], {"lm_head.weight": "model.embed_tokens.weight"} if run.model == "FineWeb-ablation-1.7B" else {})  # fmt: skip

#!/usr/bin/env python3
"""Steps that were published of cards of which no run of FSDP was, beside what is predicted for them (tests/golden/card_steps.csv).

usage: cards_test.py FSDP_PLAN [--document FILE | --rows]

The pace of a card in a precision (`pace_16_bit`, `pace_tf32`) was fitted to these steps, so it is judged by what took no part:

* the other model: the pace that BERT base gives is tried on BERT large, and the other way around;
* the other cards: a card gets the mean pace of the other cards of its kind, as one of which nothing was published has it.

BERT is NVIDIA's, fine-tuned on SQuAD: attention written out, fused Adam, fp16 beside fp32 parameters, or fp32 in TF32 where the card has it.
Llama with LoRA is predicted with its largest vectors trained in place of the adapters, which are 0.3 % of its FLOPs. Llama-3.2-3B is PEFT's
comparison of methods on MetaMathQA: samples of 210 tokens on average, sorted by length before they are padded. It took no part in any fit.

Exit: 0 all hold, 1 one does not.
"""

from __future__ import annotations

import concurrent.futures
import csv
import dataclasses
import json
import math
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import command
import marked_text

GOLDEN = command.ROOT / "tests" / "golden" / "card_steps.csv"
INSIDE = 0.96  # Share of the rows, in the printed range.
MEAN_ERROR = 0.034
LEFT_OUT_MODEL = 0.038  # Mean error of the pace of one model on the other.
LEFT_OUT_CARD = 0.95  # Share of cards and precisions, inside `time_spread` with the pace of the other cards.
GEFORCE = ("RTX 3090", "RTX 4090")  # Their tensor cores have half of the rate with sums in fp32.
# PyTorch's own AdamW, of all parameters or of the norms; and LoRA, see above.
PEFT = ["llama3_2_3b", "--gpus", "1", "--runtime", "ddp", "--activation-checkpointing", "none", "--optimizer-impl", "foreach", "--offload", "no"]
DECODERS = {
    "Llama-2-7B, LoRA": ["llama2_7b", "--gpus", "2", "--runtime", "ddp", "--activation-checkpointing", "full",
                         "--trainable", "model.layers.*.input_layernorm.weight"],
    "Llama-3.2-3B, all": PEFT,
    "Llama-3.2-3B, norms": [*PEFT, "--trainable", "*norm.weight"],
}  # fmt: skip
SHAPES = {"BERT base": (768, 12, 12), "BERT large": (1024, 24, 16)}


@dataclasses.dataclass(frozen=True)
class Step:
    source: str
    card: str
    precision: str  # fp16, bf16, tf32 or fp32.
    model: str
    batch: int
    seq: int
    seconds: float

    @property
    def pace(self) -> str:
        return {"tf32": "pace_tf32", "fp32": ""}.get(self.precision, "pace_16_bit")


@dataclasses.dataclass(frozen=True)
class Predicted:
    step: Step
    seconds: float
    low: float
    high: float
    pace: float  # That is in the prediction.
    is_wide: bool  # Nobody says how far steps of the card differ.

    @property
    def ratio(self) -> float:
        """Published time over predicted time."""
        return self.step.seconds / self.seconds

    @property
    def is_inside(self) -> bool:
        return self.low <= self.step.seconds <= self.high

    @property
    def own_pace(self) -> float:
        """That would make the prediction right."""
        return self.ratio * self.pace


def steps() -> list[Step]:
    with GOLDEN.open(encoding="utf-8", newline="") as lines:
        return [Step(row["source"], row["card"], row["precision"], row["model"], int(row["batch"]), int(row["seq"]),
                     int(row["batch"]) / float(row["samples_per_second_per_gpu"])) for row in csv.DictReader(lines)]  # fmt: skip


def bert(step: Step) -> dict[str, Any]:
    hidden, layers, heads = SHAPES[step.model]
    tokens = {"shape": ["batch", "seq"], "dtype": "int64"}
    return {"format_version": "1.0", "name": step.model, "source": step.source, "dtype": "float32", "dimensions": {"batch": 1, "seq": step.seq},
            "inputs": {"input_ids": tokens, "token_type_ids": tokens, "labels": tokens},
            "modules": [
                {"name": "bert.embeddings", "block": "bert_embeddings", "vocab_size": 30522, "hidden_size": hidden, "max_positions": 512,
                 "padding_idx": 0, "dropout": 0.1},
                {"name": f"bert.encoder.layer.{{0..{layers - 1}}}", "block": "bert_layer", "num_attention_heads": heads,
                 "intermediate_size": 4 * hidden, "dropout": 0.1},
                {"name": "qa_outputs", "block": "lm_head", "vocab_size": 2},
                {"name": "", "block": "cross_entropy"}],
            "recipes": {"squad": {"description": "As published.", "optimizer": {"kind": "adamw"}}}}  # fmt: skip


def plan_of_bert(step: Step, spec: str) -> dict[str, Any]:
    mixed = {"mixed_precision": {"param_dtype": "float16", "reduce_dtype": "float32"}} if step.precision == "fp16" else {}
    return {"format_version": "1.0", "model": {"name": step.model, "file": spec, "dimensions": {"batch": step.batch, "seq": step.seq}},
            "mesh": {"replicate": 1, "shard": 1}, "units": [{"modules": [""]}], "parameter_dtype": "float32", **mixed, "accumulation": 1,
            "optimizer": {"implementation": "fused", "weight_decay": 0.01, "clip_grad_norm": 1.0},
            "runtime": {"name": "pytorch-fsdp2", "implementations": {"attention": "eager", "matmul_allow_tf32": step.precision == "tf32"}}}  # fmt: skip


def report_of(program: pathlib.Path, step: Step, folder: pathlib.Path) -> dict[str, Any]:
    words = ["--gpu", step.card, "--mem", "1000G", "--json"]
    if step.model in SHAPES:
        spec, plan = folder / "spec.json", folder / "plan.json"
        spec.write_text(json.dumps(bert(step)), encoding="utf-8")
        plan.write_text(json.dumps(plan_of_bert(step, str(spec))), encoding="utf-8")
        return command.answer(program, "simulate", plan, "--gpus", "1", *words)
    asked = [*DECODERS[step.model], "--batch", str(step.batch), "--seq", str(step.seq), "--precision", "bf16", "--accumulate", "1"]
    return command.answer(program, *asked, *words)


def cards() -> dict[str, dict[str, Any]]:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in (command.ROOT / "model_specs" / "clusters" / "gpus").glob("*.json")]
    return {name: card for card in found for name in (card["name"], *card.get("aliases", []))}


def predict(program: pathlib.Path, of: list[Step]) -> list[Predicted]:
    known = cards()

    def one(step: Step) -> Predicted:
        with tempfile.TemporaryDirectory() as folder:
            time = report_of(program, step, pathlib.Path(folder))["time"]
        card = known[step.card]
        pace = card.get(step.pace, {"value": 1.0})["value"]
        return Predicted(step, time["step"], time["uncertainty"]["low"], time["uncertainty"]["high"], pace, "time_spread" not in card)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, of))


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def geometric(values: Iterable[float]) -> float:
    return math.exp(mean(math.log(v) for v in values))


def cells(predicted: list[Predicted]) -> dict[tuple[str, str], list[Predicted]]:
    """For BERT, by card and precision."""
    result: dict[tuple[str, str], list[Predicted]] = {}
    for p in predicted:
        if p.step.model in SHAPES:
            result.setdefault((p.step.card, p.step.precision), []).append(p)
    return result


def left_out_models(predicted: list[Predicted]) -> list[float]:
    """Published over predicted time of each model with the pace of the other."""
    return [a.own_pace / b.own_pace for of in cells(predicted).values() for a in of for b in of if a is not b]


def left_out_cards(predicted: list[Predicted]) -> dict[tuple[str, str], float]:
    """The same of each card with the pace of the other cards of its kind."""
    own = {key: geometric(p.own_pace for p in of) for key, of in cells(predicted).items() if key[1] != "fp32"}
    kinds = {key: (key[0] in GEFORCE, key[1]) for key in own}
    result = {}
    for key in own:
        others = [pace for other, pace in own.items() if kinds[other] == kinds[key] and other != key]
        result[key] = own[key] / geometric(others)
    return result


def failures(predicted: list[Predicted]) -> list[str]:
    left_out = left_out_cards(predicted)
    within = [1 / 1.4 <= ratio <= 1.4 for ratio in left_out.values()]
    bounds = [
        ("inside the printed range", mean(p.is_inside for p in predicted), INSIDE, True),
        ("mean error", mean(abs(p.ratio - 1) for p in predicted), MEAN_ERROR, False),
        ("mean error with the pace of the other model", mean(abs(r - 1) for r in left_out_models(predicted)), LEFT_OUT_MODEL, False),
        ("inside a spread of 1.4 with the pace of other cards", mean(within), LEFT_OUT_CARD, True),
    ]
    return [f"{what}: {figure:.3f}, the bound is {bound}" for what, figure, bound, at_least in bounds
            if (figure < bound if at_least else figure > bound)]  # fmt: skip


def table(predicted: list[Predicted]) -> list[str]:
    lines = ["| card, precision | steps | published time over predicted | with the pace of the other model | with that of other cards | inside |",
             "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    of_cards = left_out_cards(predicted)
    for key, of in cells(predicted).items():
        pairs = [a.own_pace / b.own_pace for a in of for b in of if a is not b]
        other = f"{of_cards[key]:.2f}" if key in of_cards else ""
        ratios, left = ("{:.2f} and {:.2f}".format(*values) for values in ([p.ratio for p in of], pairs))
        lines.append(f"| {key[0]}, {key[1]} | {len(of)} | {ratios} | {left} | {other} | {sum(p.is_inside for p in of)} |")
    for p in (p for p in predicted if p.step.model not in SHAPES):
        lines.append(f"| {p.step.card}, {p.step.precision}, {p.step.model} | 1 | {p.ratio:.2f} | | | {int(p.is_inside)} |")
    within = list(of_cards.values())
    models = left_out_models(predicted)
    return [*lines, "", f"Mean error {100 * mean(abs(p.ratio - 1) for p in predicted):.1f} %; with the pace of the other model "
            f"{100 * mean(abs(r - 1) for r in models):.1f} %, with that of the other cards {100 * mean(abs(r - 1) for r in within):.1f} %, "
            f"which {sum(1 / 1.4 <= r <= 1.4 for r in within)} of {len(within)} keep within a factor of 1.4. Inside the printed range: "
            f"{sum(p.is_inside for p in predicted)} of {len(predicted)}."]  # fmt: skip


def main() -> int:
    program = pathlib.Path(sys.argv[1]).resolve()
    predicted = predict(program, steps())
    if sys.argv[2:3] == ["--rows"]:
        print("\n".join(table(predicted)))
        return 0
    if sys.argv[2:3] == ["--document"]:
        marked_text.write_between(pathlib.Path(sys.argv[3]), "cards", table(predicted))
        return 0
    found = failures(predicted)
    print("\n".join(found or table(predicted)[-1:]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Memory of fine-tuning jobs that people reported in public threads, beside what is predicted from the options that say the job.

usage: reported_jobs_test.py FSDP_PLAN [--document FILE]

A thread rarely says everything. What it leaves open is in `open_choices`, and is chosen once for all rows of the thread. Where its unit
is not said, "GB" of a thread that measures by torch.cuda.max_memory_allocated() is 2**30 bytes, as in the trainers' own logs; where a
thread counts bytes of a parameter, it is 10**9.

Exit: 0 all lie within their bound, 1 one does not.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import pathlib
import shlex
import sys
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import command
import marked_text

GIB, GB = 2**30, 10**9
BOUND = 0.03


def allocated(report: dict[str, Any]) -> int:
    return report["memory"]["allocated_peak_bytes"]


def host_of_loading(report: dict[str, Any]) -> int:
    """Beside what the processes keep later, too."""
    host = {phase["phase"]: phase["host_bytes"] for phase in report["job_phases"]}
    return host["loading"] - host["first_step"]


@dataclasses.dataclass(frozen=True)
class Thread:
    name: str  # "owner/project#number"
    common: str  # Options of all its rows.
    unit: int
    open_choices: str = ""  # What it does not say, in words of the page.
    figure: Callable[[dict[str, Any]], int] = allocated

    @property
    def link(self) -> str:
        project, number = self.name.split("#")
        return f"[{project.split('/')[1]}#{number}](https://github.com/{project}/issues/{number})"


@dataclasses.dataclass(frozen=True)
class Row:
    thread: Thread
    job: str
    model: str
    options: str
    reported: float  # In the unit of its thread.
    less: str = ""  # The figure is what these options save beside `options`.


ONE_GPU = "--gpus 1 --runtime ddp --precision bf16"
TRL = Thread("huggingface/trl#6859", f'{ONE_GPU} --gpu "H100 SXM" --seq 2048 --loss chunked_nll --activation-checkpointing full '
             "--optimizer-impl fused --clip-grad-norm 1", GIB, "full fine-tuning at 8,192 tokens a step, as its LoRA row; the Trainer's defaults")
TUNE = Thread("meta-pytorch/torchtune#389", f"{ONE_GPU} --gpu A100 --mem 80G --batch 1 --activation-checkpointing none "
              "--clip-grad-norm none --seq 512", GB, "512 tokens")
OFFLOAD = Thread("huggingface/accelerate#4175", '--gpus 8 --gpu "H100 SXM" --seq 131072 --loss chunked_nll --offload no '
                 "--reshard true --activation-checkpointing full", GB, "a million tokens are 131,072 on each GPU, whose attention sees no others")
LOADING = Thread("huggingface/transformers#45649", '--gpus 8 --nodes 2 --gpu "H100 SXM" --precision bf16 --host-mem 2T --phases '
                 "--initialization cpu", GB, "the model: Qwen3-30B-A3B", host_of_loading)
ROWS = [
    Row(TRL, "Llama-3.2-1B, all weights", "llama3_2_1b", "--batch 4", 10.3),
    Row(TRL, "Qwen3-0.6B, all weights", "qwen3_0_6b", "--batch 4", 5.2),
    Row(TRL, "Qwen3-8B, all weights", "qwen3_8b", "--batch 4", 61.1),
    Row(TRL, "Qwen3-8B, LoRA r=16, 8,192 tokens", "qwen3_8b", "--batch 4 --lora r=16", 19.7),
    Row(TRL, "the same, 2,048 tokens", "qwen3_8b", "--batch 1 --lora r=16", 16.7),
    Row(TUNE, "Llama-2-7B, AdamW without foreach", "llama2_7b", "--optimizer-impl for_loop", 54),
    Row(TUNE, "the same, bitsandbytes' 8-bit AdamW", "llama2_7b", "--optimizer adamw_8bit", 40.5),
    Row(OFFLOAD, "Qwen3-0.6B: what inputs of checkpoints on the host save", "qwen3_0_6b", "--checkpoint-offload no", 27.9 - 20.8, "--checkpoint-offload yes"),
    Row(LOADING, "host memory of a node whose 8 ranks each load 30B", "qwen3_30b_a3b", "", 480),
]  # fmt: skip


def predicted(program: pathlib.Path, row: Row) -> float:
    def figure(options: str) -> int:
        return row.thread.figure(command.answer(program, *shlex.split(f"{row.model} {row.thread.common} {options}"), "--json"))

    return (figure(row.options) - (figure(row.less) if row.less else 0)) / row.thread.unit


def table(figures: list[float]) -> list[str]:
    lines = ["| thread | job | options | reported | predicted |", "|---|---|---|---:|---:|"]
    for row, figure in zip(ROWS, figures, strict=True):
        unit = "GiB" if row.thread.unit == GIB else "GB"
        options = f"`{row.model} {row.options}".rstrip() + (f"` less `{row.less}`" if row.less else "`")
        lines.append(f"| {row.thread.link} | {row.job} | {options} | {row.reported:.3g} {unit} | {figure:.3g} {unit} |")
    lines.append("")
    for thread in dict.fromkeys(row.thread for row in ROWS):
        lines.append(f"* {thread.link}: `{thread.common}`. Not said there, and chosen here: {thread.open_choices}.")
    return lines


def main() -> int:
    program = pathlib.Path(sys.argv[1]).resolve()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        figures = list(pool.map(lambda row: predicted(program, row), ROWS))
    lines = table(figures)
    if sys.argv[2:3] == ["--document"]:
        marked_text.write_between(pathlib.Path(sys.argv[3]), "reported jobs", lines)
        return 0
    wrong = [f"{row.thread.name}, {row.job}: {figure:.4g}, reported {row.reported:.4g}" for row, figure in zip(ROWS, figures, strict=True)
             if abs(figure / row.reported - 1) > BOUND]  # fmt: skip
    page = (command.ROOT / "docs" / "how-to" / "say-your-job.md").read_text(encoding="utf-8")
    wrong += [f"The page lacks: {line}" for line in lines if line not in page]
    print("\n".join(wrong or lines))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

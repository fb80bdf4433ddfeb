"""The table: which script runs in which environment by which command, what must have been applied, and which figures must come
out, each with its source. frameworks_test.py runs it.

`{here}` is this folder. A case may name several ranks or a card in `options`; they go to `fsdp-plan rehearse`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import expectations as expect
import shapes
from expectations import H100_WORKSPACES, Figure, Traffic
from shapes import Model

MIB = 1 << 20


@dataclasses.dataclass
class Case:
    name: str
    title: str  # as the table of results calls it
    environment: str
    packages: list[str]  # whose versions the table gives
    command: list[str]
    wrapper: str  # "FSDP2"
    model: Model
    ranks: int
    units: int  # 0: the wrapper has none
    traffic: Traffic
    figures: list[Figure]
    wrapper_keys: dict[str, Any] = dataclasses.field(default_factory=dict)  # precision, stage, offload, ...
    dtype: str = "float32"  # of the parameters
    optimizers: tuple[str, ...] = ("AdamW",)
    options: list[str] = dataclasses.field(default_factory=list)
    before: list[str] = dataclasses.field(default_factory=list)  # a Python script that makes what the command reads
    runs_out: tuple[str, int] | None = None  # of memory: in which phase of which step
    warnings: list[str] = dataclasses.field(default_factory=list)  # their kinds
    parameters: int = 0  # in all, where more than the model's are there


BF16 = {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}
MIXED = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
AUTOCAST = {"autocast": ["bfloat16"]}
TORCHRUN = ["torchrun", "--nproc-per-node", "8"]
SMOL = "{here}/models/smollm2-135m"


def _base() -> list[Case]:
    """PyTorch's own. Its other wrappers are in ../hook_test.py, which runs with all tests."""
    return [Case("torch_fsdp2", "PyTorch, FSDP2", "torch-2.11.0", ["torch"], [*TORCHRUN, "{here}/../scripts/fsdp2.py"],
                 "FSDP2", shapes.small_transformer(), 8, 5, expect.fsdp2(shapes.small_transformer(), 8), [], MIXED)]


def _hugging_face(environment: str) -> list[Case]:
    """The Trainer and a loop with accelerate. accelerate 1.12 gathers a root of FSDP2 again for backward, 1.15 does not."""
    old = environment == "transformers-4"
    mark = "_4" if old else ""
    model, rows = shapes.SMOLLM2_135M, []
    trainer = ["{here}/hf_trainer.py", "--config_name", SMOL, "--output_dir", "out", "--per_device_train_batch_size", "2",
               "--max_steps", "4", "--bf16", "--report_to", "none", "--save_strategy", "no"]  # fmt: skip
    fsdp = ["--fsdp", "full_shard auto_wrap", "--fsdp_config", "{here}/config/trainer_fsdp.json"]
    # Flat parameters of FSDP1 keep a little more than shards, and the batch and its logits may be alive.
    states = [expect.fsdp_states(model, 8, H100_WORKSPACES + 8 * MIB)]
    kinds = {
        1: ("FSDP1", expect.fsdp1(model, 8), {**BF16, "buffer_dtype": "bfloat16", "strategy": "FULL_SHARD"}),
        2: ("FSDP2", expect.fsdp2(model, 8, "bfloat16", root_again=old), BF16),
    }
    buckets = 4 * model.trainable
    rows.append(Case(f"trainer_ddp{mark}", "HF Trainer, DDP", environment, ["transformers", "accelerate"],
                     [*TORCHRUN, *trainer], "DDP", model, 8, 0, expect.ddp(model),
                     [expect.whole_states(model, buckets + H100_WORKSPACES + 80 * MIB)], AUTOCAST, warnings=["ddp_pause"]))
    # `fsdp=` is FSDP1 in transformers 4, and FSDP2 in transformers 5.
    wrapper, traffic, keys = kinds[1 if old else 2]
    rows.append(Case(f"trainer_fsdp{mark}", "HF Trainer, fsdp=", environment, ["transformers", "accelerate"],
                     [*TORCHRUN, *trainer, *fsdp], wrapper, model, 8, 31, traffic, states, keys))
    for version, (wrapper, traffic, keys) in kinds.items():
        launch = ["accelerate", "launch", "--config_file", f"{{here}}/config/accelerate_fsdp{version}.yaml"]
        rows.append(Case(f"trainer_accelerate_fsdp{version}{mark}", f"HF Trainer, accelerate launch, {wrapper}", environment,
                         ["transformers", "accelerate"], [*launch, *trainer], wrapper, model, 8, 31, traffic, states, keys))
        rows.append(Case(f"accelerate_fsdp{version}{mark}", f"accelerate loop, {wrapper}", environment, ["accelerate"],
                         [*launch, "{here}/accelerate_loop.py", SMOL], wrapper, model, 8, 31, traffic, states, keys))
    return rows


def _lightning() -> list[Case]:
    model, rows = shapes.lightning_model(), []
    states = [expect.fsdp_states(model, 8, H100_WORKSPACES + 12 * MIB)]
    for how, wrapper, strategy, traffic, keys in [
        ("fsdp1", "FSDP1", "FSDPStrategy", expect.fsdp1(model, 8), BF16),
        ("fsdp2", "FSDP2", "ModelParallelStrategy", expect.fsdp2(model, 8), MIXED),
    ]:
        rows.append(Case(f"lightning_{how}", f"Lightning, {strategy}", "frameworks", ["lightning"],
                         [*TORCHRUN, "{here}/lightning_fsdp.py", how], wrapper, model, 8, 13, traffic, states, keys))
    return rows


def _models() -> list[Case]:
    """Hugging Face models in a loop of PyTorch's own."""
    table = {
        "llama-3.2-1b": (shapes.LLAMA_1B, ["LlamaDecoderLayer"], []),
        "qwen3-0.6b": (shapes.QWEN3_06B, ["Qwen3DecoderLayer"], []),
        "gpt2": (shapes.gpt2(), ["GPT2Block"], []),
        "bert-large": (shapes.bert_large(), ["BertLayer"], []),
        "vit-large": (shapes.vit_large(), ["ViTLayer"], []),
        "t5-base": (shapes.t5_base(), ["T5Block"], []),
        "whisper-small": (shapes.whisper_small(), ["WhisperEncoderLayer", "WhisperDecoderLayer"], ["--block_size", "448"]),
    }
    rows = []
    for name, (model, blocks, more) in table.items():
        script = ["{here}/hf_models.py", f"{{here}}/models/{name}"]
        batch = 24 * MIB  # a batch and its loss
        whole = expect.whole_states(model, H100_WORKSPACES + batch)
        buckets = expect.whole_states(model, 4 * model.trainable + H100_WORKSPACES + batch)
        rows += [
            Case(f"{name}_plain", f"transformers {name}, plain", "frameworks", ["transformers"],
                 ["python", *script, "plain", *more], "plain", model, 1, 0, {}, [whole], AUTOCAST),
            Case(f"{name}_ddp", f"transformers {name}, DDP", "frameworks", ["transformers"],
                 [*TORCHRUN, *script, "ddp", *more], "DDP", model, 8, 0, expect.ddp(model), [buckets], AUTOCAST,
                 warnings=["ddp_pause"]),
            Case(f"{name}_fsdp2", f"transformers {name}, FSDP2", "frameworks", ["transformers"],
                 [*TORCHRUN, *script, "fsdp2", "--blocks", *blocks, *more], "FSDP2", model, 8, len(model.units) + 1,
                 expect.fsdp2(model, 8), [expect.fsdp_states(model, 8, H100_WORKSPACES + batch)], MIXED),
        ]  # fmt: skip
    return rows


def _large() -> list[Case]:
    """Llama-3.1-70B on 64 GPUs: what it takes in seconds and host memory."""
    model = shapes.LLAMA_70B
    command = [*TORCHRUN, "--nnodes", "8", "{here}/hf_models.py", "{here}/models/llama-3.1-70b", "fsdp2", "--blocks",
               "LlamaDecoderLayer", "--batch_size", "1", "--block_size", "1024"]  # fmt: skip
    return [Case("llama-3.1-70b_fsdp2", "transformers llama-3.1-70b, FSDP2, 64 GPUs", "frameworks", ["transformers"], command,
                 "FSDP2", model, 64, 81, expect.fsdp2(model, 64),
                 [expect.fsdp_states(model, 64, H100_WORKSPACES + 24 * MIB)], MIXED)]


def all_cases() -> list[Case]:
    from cases_special import deepspeed, qwen_tts, torchtitan

    return [*_base(), *_hugging_face("frameworks"), *_hugging_face("transformers-4"), *_lightning(), *deepspeed(),
            *_models(), *torchtitan(), *qwen_tts(), *_large()]

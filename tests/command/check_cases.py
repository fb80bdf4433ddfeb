"""Configurations with one mistake each, and the same without it (check_test.py)."""

FSDP2 = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 8
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_version: 2
"""
FSDP1 = FSDP2.replace("fsdp_version: 2", "fsdp_version: 1")
DEEPSPEED = """compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 8
deepspeed_config:
  zero_stage: 2
"""
ZERO3 = DEEPSPEED.replace("zero_stage: 2", "zero_stage: 3")
SFT = """model_name_or_path: Qwen/Qwen3-8B
dataset_name: trl-lib/Capybara
bf16: true
per_device_train_batch_size: 2
"""
TRAINER = "output_dir: out\nlearning_rate: 1.0e-5\nbf16: true\n"
LORA = SFT + "use_peft: true\ndtype: bfloat16\n"
MESH = FSDP2 + """parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
"""


def ds(text):
    return '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'.replace(
        '"zero_optimization": {"stage": 2}', text)


def fsdp(more, version=2):
    return {"fsdp.yaml": (FSDP2 if version == 2 else FSDP1) + "".join(f"  {line}\n" for line in more.split("\n"))}


def swap(text, old, new, name="fsdp.yaml"):
    assert old in text, (text, old)
    return {name: text.replace(old, new)}


def run(launch, trainer):
    return {"fsdp.yaml": launch, "sft.yaml": trainer}


def both(more, trainer, version=2):
    return {**fsdp(more, version), "sft.yaml": trainer}


AXOLOTL = """base_model: Qwen/Qwen3-8B
datasets:
  - path: data
    type: alpaca
fsdp_version: 2
fsdp_config:
  cpu_ram_efficient_loading: true
  transformer_layer_cls_to_wrap: Qwen3DecoderLayer
  reshard_after_forward: true
learning_rate: 1.0e-5
micro_batch_size: 1
gradient_accumulation_steps: 1
optimizer: adamw_torch_fused
sequence_len: 2048
"""
PLAIN_AXOLOTL = {"axolotl.yml": AXOLOTL}


def axo(more="", **changes):
    """The file with more lines, and with other values of its keys; None removes one."""
    text = AXOLOTL
    for key, value in changes.items():
        lines = [line for line in text.splitlines() if line.strip().startswith(f"{key}:")]
        assert len(lines) == 1, key
        text = text.replace(lines[0] + "\n", "" if value is None else lines[0].split(":")[0] + f": {value}\n")
    return {"axolotl.yml": text + more}


def axo_fsdp(line):
    return {"axolotl.yml": AXOLOTL.replace("  reshard_after", f"  {line}\n  reshard_after")}


PLAIN = {"fsdp.yaml": FSDP2}
PLAIN1 = {"fsdp.yaml": FSDP1}
PLAIN_SFT = {"sft.yaml": SFT}
CONFIG = "/fsdp_config/fsdp_"

# For each rule: severity, place, files with the mistake, files without it.
CASES = {
    "unknown-key": [
        ("error", "/num_proceses", {"fsdp.yaml": FSDP2 + "num_proceses: 8\n"}, PLAIN),
        ("error", CONFIG + "reshard_after_foward", fsdp("fsdp_reshard_after_foward: true"), fsdp("fsdp_reshard_after_forward: true")),
        ("note", CONFIG + "colour", fsdp("fsdp_colour: red"), fsdp("version: 2")),
        ("error", "/lerning_rate", {"sft.yaml": SFT + "lerning_rate: 1\n"}, {"sft.yaml": SFT + "learning_rate: 1\n"}),
        ("error", "/stage", {"sft.yaml": SFT + "stage: sft\n"}, PLAIN_SFT),
        ("warning", "/lerning_rate", {"t.yaml": TRAINER + "lerning_rate: 1\n"}, {"t.yaml": TRAINER + "my_own: 1\n"}),
        ("error", "/zero_optimization/reduce_bucketsize", {"ds.json": ds('"zero_optimization": {"stage": 2, "reduce_bucketsize": 1}')},
         {"ds.json": ds('"zero_optimization": {"stage": 2, "reduce_bucket_size": 1}')}),
        ("error", "/deepspeed_config/zero_stag", swap(DEEPSPEED, "zero_stage", "zero_stag"), {"fsdp.yaml": DEEPSPEED}),
    ],
    "renamed-key": [
        ("error", "/max_seq_length", {"sft.yaml": SFT + "max_seq_length: 4096\n"}, {"sft.yaml": SFT + "max_length: 4096\n"}),
        ("error", "/evaluation_strategy", {"t.yaml": TRAINER + "evaluation_strategy: steps\n"}, {"t.yaml": TRAINER + "eval_strategy: steps\n"}),
        ("note", CONFIG + "backward_prefetch_policy", fsdp("fsdp_backward_prefetch_policy: BACKWARD_PRE", 1),
         fsdp("fsdp_backward_prefetch: BACKWARD_PRE", 1)),
    ],
    "invalid-value": [
        ("error", "/mixed_precision", swap(FSDP2, "bf16", "bfloat16"), PLAIN),
        ("error", "/distributed_type", swap(FSDP2, ": FSDP", ": fsdp"), PLAIN),
        ("error", CONFIG + "auto_wrap_policy", swap(FSDP2, "TRANSFORMER_BASED_WRAP", "TRANSFORMER_WRAP"),
         swap(FSDP2, "TRANSFORMER_BASED_WRAP", "transformer_based_wrap")),
        ("error", CONFIG + "version", swap(FSDP2, "fsdp_version: 2", "fsdp_version: 3"), PLAIN),
        ("error", CONFIG + "state_dict_type", fsdp("fsdp_state_dict_type: FULL"), fsdp("fsdp_state_dict_type: FULL_STATE_DICT")),
        ("error", CONFIG + "backward_prefetch", fsdp("fsdp_backward_prefetch: PRE"), fsdp("fsdp_backward_prefetch: NO_PREFETCH")),
        ("error", CONFIG + "sharding_strategy", fsdp("fsdp_sharding_strategy: ZERO3", 1), fsdp("fsdp_sharding_strategy: 1", 1)),
        ("error", CONFIG + "min_num_params", swap(FSDP2 + "  fsdp_min_num_params: 1e8\n", "TRANSFORMER_", "SIZE_"),
         swap(FSDP2 + "  fsdp_min_num_params: 100000000\n", "TRANSFORMER_", "SIZE_")),
    ],
    "launch-key-missing": [
        ("error", "", swap(FSDP2, "distributed_type: FSDP\n", ""), PLAIN),
        ("error", "/distributed_type", swap(FSDP2, "num_processes: 8\n", ""), PLAIN),
    ],
    "unquoted-no": [("error", "/eval_strategy", {"t.yaml": TRAINER + "eval_strategy: no\n"}, {"t.yaml": TRAINER + "eval_strategy: 'no'\n"}),
                    ("error", "/mixed_precision", swap(FSDP2, "bf16", "no"), swap(FSDP2, "bf16", "'no'"))],
    "section-unused": [
        ("error", "/distributed_type", swap(FSDP2, ": FSDP", ": MULTI_GPU"), PLAIN),
        ("error", "/distributed_type", swap(DEEPSPEED, ": DEEPSPEED", ": MULTI_GPU"), {"fsdp.yaml": DEEPSPEED}),
    ],
    "processes-uneven": [("error", "/num_processes", swap(FSDP2, "num_machines: 1", "num_machines: 3"), swap(FSDP2, "num_machines: 1", "num_machines: 2"))],
    "gpu-ids-few": [("error", "/gpu_ids", {"fsdp.yaml": FSDP2 + "gpu_ids: 0,1,2,3\n"}, {"fsdp.yaml": FSDP2 + "gpu_ids: all\n"})],
    "mesh-size": [("error", "/parallelism_config", swap(MESH, "shard_size: 4", "shard_size: 2"), {"fsdp.yaml": MESH})],
    "mesh-without-shard": [("error", "/parallelism_config", swap(MESH, "shard_size: 4", "shard_size: 1"), {"fsdp.yaml": MESH})],
    "fsdp-version-missing": [("note", "/fsdp_config", swap(FSDP2, "  fsdp_version: 2\n", ""), PLAIN1)],
    "fsdp2-ignores-key": [
        ("error", CONFIG + "sharding_strategy", fsdp("fsdp_sharding_strategy: SHARD_GRAD_OP"), fsdp("fsdp_sharding_strategy: SHARD_GRAD_OP", 1)),
        ("error", CONFIG + "sharding_strategy", fsdp("fsdp_sharding_strategy: HYBRID_SHARD"), fsdp("fsdp_sharding_strategy: FULL_SHARD")),
        ("note", CONFIG + "sharding_strategy", fsdp("fsdp_sharding_strategy: FULL_SHARD"), PLAIN),
        ("warning", CONFIG + "forward_prefetch", fsdp("fsdp_forward_prefetch: true"), fsdp("fsdp_forward_prefetch: false")),
        ("note", CONFIG + "backward_prefetch", fsdp("fsdp_backward_prefetch: BACKWARD_PRE"), fsdp("fsdp_backward_prefetch: NO_PREFETCH")),
        ("note", CONFIG + "use_orig_params", fsdp("fsdp_use_orig_params: true"), fsdp("fsdp_use_orig_params: true", 1)),
        ("note", CONFIG + "sync_module_states", fsdp("fsdp_sync_module_states: true"), PLAIN),
    ],
    "fsdp2-reshard-value": [("error", CONFIG + "reshard_after_forward", fsdp("fsdp_reshard_after_forward: FULL_SHARD"), fsdp("fsdp_reshard_after_forward: 'True'"))],
    "fsdp1-ignores-reshard": [
        ("error", CONFIG + "reshard_after_forward", fsdp("fsdp_reshard_after_forward: SHARD_GRAD_OP", 1), fsdp("fsdp_reshard_after_forward: FULL_SHARD", 1)),
        ("error", CONFIG + "reshard_after_forward", fsdp("fsdp_reshard_after_forward: false", 1),
         fsdp("fsdp_reshard_after_forward: SHARD_GRAD_OP\nfsdp_sharding_strategy: SHARD_GRAD_OP", 1)),
    ],
    "sync-module-states-off": [("error", CONFIG + "sync_module_states", fsdp("fsdp_sync_module_states: false"),
                                fsdp("fsdp_sync_module_states: false\nfsdp_cpu_ram_efficient_loading: false"))],
    "checkpoint-offload-alone": [
        ("error", CONFIG + "activation_checkpointing_offload", fsdp("fsdp_activation_checkpointing_offload: true"),
         fsdp("fsdp_activation_checkpointing_offload: true\nfsdp_activation_checkpointing: true")),
        ("error", CONFIG + "activation_checkpointing_offload", fsdp("fsdp_activation_checkpointing_offload: true\nfsdp_activation_checkpointing: true", 1), PLAIN1),
    ],
    "local-state-dict": [("error", CONFIG + "state_dict_type", fsdp("fsdp_state_dict_type: LOCAL_STATE_DICT"), fsdp("fsdp_state_dict_type: LOCAL_STATE_DICT", 1))],
    "hybrid-on-one-node": [("warning", CONFIG + "sharding_strategy", fsdp("fsdp_sharding_strategy: HYBRID_SHARD", 1),
                            swap(FSDP1 + "  fsdp_sharding_strategy: HYBRID_SHARD\n", "num_machines: 1", "num_machines: 2"))],
    "trainer-fsdp-off": [("error", "/fsdp_config", {"t.yaml": TRAINER + "fsdp_config: {version: 2}\n"},
                          {"t.yaml": TRAINER + "fsdp: true\nfsdp_config: {version: 2}\n"})],
    "trainer-fsdp-text": [
        ("error", "/fsdp", {"t.yaml": TRAINER + "fsdp: hybrid_shard auto_wrap\n"}, {"t.yaml": TRAINER + "fsdp: true\n"}),
        ("note", "/fsdp", {"t.yaml": TRAINER + "fsdp: full_shard auto_wrap\n"}, {"t.yaml": TRAINER + "fsdp: true\n"}),
    ],
    "wraps-root-only": [
        ("warning", CONFIG + "auto_wrap_policy", swap(FSDP2, "TRANSFORMER_BASED_WRAP", "NO_WRAP"), PLAIN),
        ("warning", "/fsdp_config", swap(FSDP2, "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", ""), PLAIN),
        ("warning", CONFIG + "min_num_params", swap(FSDP2 + "  fsdp_min_num_params: 0\n", "TRANSFORMER_", "SIZE_"),
         swap(FSDP2 + "  fsdp_min_num_params: 1000000\n", "TRANSFORMER_", "SIZE_")),
        ("warning", CONFIG + "min_num_params", {**swap(FSDP2 + "  fsdp_min_num_params: 900000000000\n", "TRANSFORMER_", "SIZE_"), "sft.yaml": SFT},
         {**swap(FSDP2 + "  fsdp_min_num_params: 90000000\n", "TRANSFORMER_", "SIZE_"), "sft.yaml": SFT}),
    ],
    "wrap-class-unused": [("error", CONFIG + "transformer_layer_cls_to_wrap",
                           swap(FSDP2 + "  fsdp_transformer_layer_cls_to_wrap: Qwen3DecoderLayer\n", "TRANSFORMER_", "SIZE_"),
                           fsdp("fsdp_transformer_layer_cls_to_wrap: Qwen3DecoderLayer"))],
    "wrap-class-list": [
        ("error", CONFIG + "transformer_layer_cls_to_wrap", fsdp("fsdp_transformer_layer_cls_to_wrap: [A, B]"), fsdp("fsdp_transformer_layer_cls_to_wrap: A,B")),
        ("error", CONFIG + "transformer_layer_cls_to_wrap", fsdp("fsdp_transformer_layer_cls_to_wrap: A, B"), fsdp("fsdp_transformer_layer_cls_to_wrap: A,B")),
    ],
    "wrap-class-unknown": [("error", CONFIG + "transformer_layer_cls_to_wrap", both("fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer", SFT),
                            both("fsdp_transformer_layer_cls_to_wrap: Qwen3DecoderLayer", SFT))],
    "every-rank-loads": [("warning", CONFIG + "cpu_ram_efficient_loading", fsdp("fsdp_cpu_ram_efficient_loading: false"), fsdp("fsdp_cpu_ram_efficient_loading: true"))],
    "parameters-stay-gathered": [
        ("warning", CONFIG + "reshard_after_forward", fsdp("fsdp_reshard_after_forward: false"), fsdp("fsdp_reshard_after_forward: true")),
        ("warning", CONFIG + "sharding_strategy", fsdp("fsdp_sharding_strategy: SHARD_GRAD_OP", 1), fsdp("fsdp_sharding_strategy: FULL_SHARD", 1)),
    ],
    "gradients-unreduced": [("warning", "/gradient_accumulation_steps", run(FSDP2, SFT + "gradient_accumulation_steps: 4\n"),
                             run(FSDP2, SFT + "gradient_accumulation_steps: 4\naccelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: true}}\n"))],
    "full-state-dict": [("note", CONFIG + "state_dict_type", both("fsdp_state_dict_type: FULL_STATE_DICT", SFT),
                         both("fsdp_state_dict_type: FULL_STATE_DICT", SFT.replace("8B", "0.6B")))],
    "float32-base": [("warning", "/use_peft", run(FSDP2, SFT + "use_peft: true\n"), run(FSDP2, LORA)),
                     ("warning", "/dtype", run(FSDP2, LORA.replace("bfloat16", "float32")), run(FSDP2, LORA))],
    "packing-with-mask": [("warning", "/packing", {"sft.yaml": SFT + "packing: true\n"},
                           {"sft.yaml": SFT + "packing: true\nattn_implementation: flash_attention_2\n"})],
    "quantized-base-whole": [("warning", "/load_in_4bit", run(FSDP2, LORA + "load_in_4bit: true\n"),
                              run(FSDP2, LORA + "load_in_4bit: true\nbnb_4bit_quant_storage: bfloat16\n"))],
    "quantized-dtypes": [("error", "/load_in_4bit", run(FSDP1, LORA + "load_in_4bit: true\n"),
                          run(FSDP1, LORA + "load_in_4bit: true\nbnb_4bit_quant_storage: bfloat16\n"))],
    "checkpoints-twice": [
        ("error", CONFIG + "activation_checkpointing", both("fsdp_activation_checkpointing: true", SFT),
         both("fsdp_activation_checkpointing: true", SFT + "gradient_checkpointing: false\n")),
        ("error", "/gradient_checkpointing", both("fsdp_activation_checkpointing: true", TRAINER + "gradient_checkpointing: true\n"),
         both("fsdp_activation_checkpointing: true", TRAINER)),
    ],
    "optimizer-on-dtensors": [
        (("error"), "/optim", run(FSDP2, SFT + f"optim: {name}\n"), run(FSDP1, SFT + f"optim: {name}\n"))
        for name in ("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "lion_8bit", "adafactor")
    ],
    "fp16-and-bf16": [("error", "/fp16", {"sft.yaml": SFT + "fp16: true\n"}, PLAIN_SFT)],
    "precision-overridden": [
        ("warning", "/mixed_precision", run(FSDP2.replace("bf16", "fp16"), SFT), run(FSDP2, SFT)),
        ("warning", "/mixed_precision", run(FSDP2.replace("bf16", "'no'"), SFT.replace("bf16: true\n", "")), run(FSDP2, SFT)),
        ("warning", "/bf16", run(FSDP2, TRAINER.replace("bf16: true", "bf16: false")), run(FSDP2, TRAINER)),
    ],
    "save-only-model": [
        ("error", "/save_only_model", run(FSDP2, SFT + "save_only_model: true\n"), both("fsdp_state_dict_type: FULL_STATE_DICT", SFT + "save_only_model: true\n")),
        ("error", "/save_only_model", run(FSDP1, SFT + "save_only_model: true\nload_best_model_at_end: true\neval_strategy: steps\n"),
         run(FSDP1, SFT + "save_only_model: true\n")),
    ],
    "best-model-strategy": [("error", "/load_best_model_at_end", {"sft.yaml": SFT + "load_best_model_at_end: true\n"},
                             {"sft.yaml": SFT + "load_best_model_at_end: true\neval_strategy: steps\n"})],
    "auto-batch-zero3": [("error", "/auto_find_batch_size", run(ZERO3, SFT + "auto_find_batch_size: true\n"), run(DEEPSPEED, SFT + "auto_find_batch_size: true\n"))],
    "quantized-without-adapters": [("error", "/load_in_4bit", {"sft.yaml": SFT + "load_in_4bit: true\n"}, {"sft.yaml": LORA + "load_in_4bit: true\n"})],
    "padding-free-unbounded": [
        ("error", "/padding_free", {"sft.yaml": SFT + "padding_free: true\n"}, {"sft.yaml": SFT + "padding_free: true\npacking: true\n"}),
        ("error", "/padding_free", {"sft.yaml": SFT + "padding_free: true\n"}, {"sft.yaml": SFT + "padding_free: true\nmax_length: null\n"}),
    ],
    "loss-refused": [
        ("error", "/loss_type", {"sft.yaml": SFT + "loss_type: mse\n"}, {"sft.yaml": SFT + "loss_type: dft\n"}),
        ("note", "/loss_type", {"sft.yaml": SFT + "loss_type: chunked_nll\n"}, {"sft.yaml": SFT + "loss_type: nll\n"}),
    ],
    "liger-loss": [
        ("error", "/liger_kernel_config/fused_linear_cross_entropy",
         {"sft.yaml": SFT + "use_liger_kernel: true\nliger_kernel_config: {fused_linear_cross_entropy: true}\n"}, PLAIN_SFT),
        ("note", "/use_liger_kernel", {"sft.yaml": SFT + "use_liger_kernel: true\n"}, PLAIN_SFT),
    ],
    "selective-checkpoints": [
        ("error", "/gradient_checkpointing_kwargs/selective", {"sft.yaml": SFT + "gradient_checkpointing: false\ngradient_checkpointing_kwargs: {selective: true}\n"},
         {"sft.yaml": SFT + "gradient_checkpointing_kwargs: {selective: true}\n"}),
        ("error", "/gradient_checkpointing_kwargs/use_reentrant", {"sft.yaml": SFT + "gradient_checkpointing_kwargs: {selective: true, use_reentrant: true}\n"},
         {"sft.yaml": SFT + "gradient_checkpointing_kwargs: {selective: true, use_reentrant: false}\n"}),
        ("error", "/gradient_checkpointing_kwargs/selective", run(ZERO3, LORA + "gradient_checkpointing_kwargs: {selective: true}\n"),
         run(DEEPSPEED, LORA + "gradient_checkpointing_kwargs: {selective: true}\n")),
    ],
    "reentrant-forced": [("warning", "/gradient_checkpointing_kwargs/use_reentrant", run(ZERO3, LORA + "gradient_checkpointing_kwargs: {use_reentrant: false}\n"),
                          run(DEEPSPEED, LORA + "gradient_checkpointing_kwargs: {use_reentrant: false}\n"))],
    "packing-context-parallel": [("error", "/packing", run(MESH.replace("dp_replicate", "cp"), SFT + "packing: true\n"), run(MESH, SFT + "packing: true\n"))],
    "adapter-on-head": [("error", "/lora_target_modules", {"sft.yaml": LORA + "lora_target_modules: [q_proj, lm_head]\n"},
                         {"sft.yaml": LORA + "lora_target_modules: [q_proj, v_proj]\n"})],
    "deepspeed-key-removed": [
        ("error", "/zero_optimization/mics_shard_size", {"ds.json": ds('"zero_optimization": {"stage": 3, "mics_shard_size": 8}')}, {"ds.json": ds('"zero_optimization": {"stage": 3}')}),
        ("error", "/curriculum_learning", {"ds.json": ds('"curriculum_learning": {}')}, {"ds.json": ds('"zero_optimization": {"stage": 3}')}),
    ],
    "zero3-init": [("note", "/deepspeed_config/zero3_init_flag", {"fsdp.yaml": DEEPSPEED + "  zero3_init_flag: true\n"}, {"fsdp.yaml": ZERO3 + "  zero3_init_flag: true\n"})],
    "stage3-key": [("note", "/zero_optimization/stage3_max_live_parameters", {"ds.json": ds('"zero_optimization": {"stage": 2, "stage3_max_live_parameters": 1}')},
                    {"ds.json": ds('"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1}')})],
    "offload-needs-stage3": [
        ("error", "/deepspeed_config/offload_param_device", {"fsdp.yaml": DEEPSPEED + "  offload_param_device: cpu\n"}, {"fsdp.yaml": DEEPSPEED + "  offload_param_device: none\n"}),
        ("error", "/zero_optimization/offload_param/device", {"ds.json": ds('"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}')},
         {"ds.json": ds('"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}')}),
        ("error", "/zero_optimization/offload_optimizer/device", {"ds.json": ds('"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}}')},
         {"ds.json": ds('"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}')}),
        ("error", "/zero_optimization/offload_optimizer/ratio", {"ds.json": ds('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}')},
         {"ds.json": ds('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}')}),
    ],
    "deepspeed-two-precisions": [("error", "/fp16/enabled", {"ds.json": ds('"fp16": {"enabled": true}, "bf16": {"enabled": true}')},
                                  {"ds.json": ds('"fp16": {"enabled": false}, "bf16": {"enabled": true}')})],
    "deepspeed-launch-precision": [("error", "/fp16/enabled", {"fsdp.yaml": DEEPSPEED, "ds.json": ds('"fp16": {"enabled": true}')},
                                    {"fsdp.yaml": DEEPSPEED, "ds.json": ds('"fp16": {"enabled": "auto"}')})],
    "deepspeed-batch": [("error", "/train_batch_size",
                         {"fsdp.yaml": DEEPSPEED, "ds.json": '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}'},
                         {"fsdp.yaml": DEEPSPEED, "ds.json": '{"train_batch_size": 128, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}'})],
    "deepspeed-trainer-mismatch": [
        ("error", "/train_micro_batch_size_per_gpu", {"ds.json": ds('"zero_optimization": {"stage": 2}').replace('"auto"', "4"), "sft.yaml": SFT},
         {"ds.json": ds('"zero_optimization": {"stage": 2}').replace('"auto"', "2"), "sft.yaml": SFT}),
        ("error", "/deepspeed_config/gradient_accumulation_steps", run(DEEPSPEED + "  gradient_accumulation_steps: 1\n", SFT + "gradient_accumulation_steps: 4\n"),
         run(DEEPSPEED + "  gradient_accumulation_steps: 4\n", SFT + "gradient_accumulation_steps: 4\n")),
        ("error", "/deepspeed_config/deepspeed_config_file",
         {"fsdp.yaml": DEEPSPEED + "  deepspeed_config_file: named.json\n", "sft.yaml": SFT + "gradient_accumulation_steps: 4\n",
          "named.json": ds('"zero_optimization": {"stage": 2}')},
         {"fsdp.yaml": DEEPSPEED + "  deepspeed_config_file: named.json\n", "sft.yaml": SFT + "gradient_accumulation_steps: 4\n",
          "named.json": ds('"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"')}),
        ("error", "/bf16/enabled", {"ds.json": ds('"bf16": {"enabled": false}'), "sft.yaml": SFT}, {"ds.json": ds('"bf16": {"enabled": "auto"}'), "sft.yaml": SFT}),
    ],
    "deepspeed-file-and-keys": [
        ("error", "/deepspeed_config/zero_stage", {"fsdp.yaml": DEEPSPEED + "  deepspeed_config_file: named.json\n", "named.json": ds('"zero_optimization": {"stage": 2}')}, {"fsdp.yaml": DEEPSPEED}),
        ("error", "/mixed_precision", {"fsdp.yaml": DEEPSPEED + "  deepspeed_config_file: named.json\n"}, {"fsdp.yaml": DEEPSPEED}),
    ],
    "overlap-second-buffer": [("note", "/zero_optimization/overlap_comm", {"ds.json": ds('"zero_optimization": {"stage": 2, "overlap_comm": true}')},
                               {"ds.json": ds('"zero_optimization": {"stage": 2, "overlap_comm": false}')})],
}  # fmt: skip

# Files as their programs ship or write them.
CASES.update({
    "axolotl-unknown-key": [
        ("error", "/sequence_length", axo("sequence_length: 4096\n"), PLAIN_AXOLOTL),
        ("note", "/somebodys_own", axo("somebodys_own: 1\n"), axo("somebodys_own: 1\nplugins: [mine.Plugin]\n")),
        ("error", "/fsdp_config/reshard_after_foward", axo_fsdp("reshard_after_foward: true"), axo_fsdp("fsdp_offload_params: false")),
    ],
    "axolotl-version-1": [
        ("warning", "/fsdp_config", axo(fsdp_version=None), PLAIN_AXOLOTL),
        ("note", "/fsdp_version", axo(fsdp_version=1), PLAIN_AXOLOTL),
    ],
    "axolotl-ignored-key": [
        ("error", "/fsdp_config/sharding_strategy", axo_fsdp("sharding_strategy: SHARD_GRAD_OP"), PLAIN_AXOLOTL),
        ("note", "/fsdp_config/fsdp_use_orig_params", axo_fsdp("fsdp_use_orig_params: true"), PLAIN_AXOLOTL),
        ("note", "/fsdp_config/limit_all_gathers", axo_fsdp("limit_all_gathers: true"), PLAIN_AXOLOTL),
    ],
    "axolotl-wrap": [
        ("error", "/fsdp_config/transformer_layer_cls_to_wrap", axo(transformer_layer_cls_to_wrap="LlamaDecoderLayer"), PLAIN_AXOLOTL),
        ("warning", "/fsdp_config", axo(transformer_layer_cls_to_wrap=None), PLAIN_AXOLOTL),
    ],
    "axolotl-loading": [
        ("warning", "/fsdp_config/cpu_ram_efficient_loading", axo(cpu_ram_efficient_loading="false"), PLAIN_AXOLOTL),
        ("warning", "/fsdp_config", axo(cpu_ram_efficient_loading=None), PLAIN_AXOLOTL),
        ("error", "/fsdp_config/cpu_ram_efficient_loading", axo("adapter: qlora\nload_in_4bit: true\n"),
         axo("adapter: qlora\nload_in_4bit: true\n", cpu_ram_efficient_loading="false")),
    ],
    "axolotl-packing": [
        ("error", "/sample_packing", axo("sample_packing: true\n"), axo("sample_packing: true\nflash_attention: true\n")),
        ("error", "/attn_implementation", axo("sample_packing: true\nattn_implementation: fp8\n"),
         axo("sample_packing: true\nattn_implementation: flash_attention_2\n")),
    ],
    "axolotl-checkpoints-twice": [
        ("error", "/fsdp_config/activation_checkpointing",
         {"axolotl.yml": axo_fsdp("activation_checkpointing: true")["axolotl.yml"] + "gradient_checkpointing: true\n"},
         axo_fsdp("activation_checkpointing: true")),
    ],
    "axolotl-optimizer": [
        ("error", "/optimizer", axo(optimizer="adamw_bnb_8bit"), axo(optimizer="adamw_torch_8bit")),
        ("error", "/optimizer", axo(optimizer="adamw_8bit"), axo(optimizer="adamw_8bit", fsdp_version=1)),
    ],
    "axolotl-plugin": [
        ("error", "/liger_rope", axo("liger_rope: true\n"),
         axo("liger_rope: true\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n")),
        ("error", "/cut_cross_entropy", axo("cut_cross_entropy: true\n"),
         axo("cut_cross_entropy: true\nplugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n")),
    ],
    "axolotl-pinned-memory": [
        ("error", "/fsdp_config/cpu_offload_pin_memory", axo_fsdp("cpu_offload_pin_memory: false"),
         axo_fsdp("offload_params: true\n  cpu_offload_pin_memory: false")),
    ],
})  # fmt: skip

CLEAN = {
    "accelerate's examples, fsdp.yaml": {"fsdp.yaml": """compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: BertLayer
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""},
    "TRL's fsdp2.yaml with a run of TRL": {"fsdp.yaml": FSDP2 + """  fsdp_activation_checkpointing: false
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: FULL_STATE_DICT
machine_rank: 0
tpu_env: []
""", "sft.yaml": SFT + "max_length: 4096\npacking: true\nattn_implementation: flash_attention_2\n"},
    "transformers' ds_config_zero3.json": {"ds.json": """{
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none", "pin_memory": true}, "offload_param": {"device": "none", "pin_memory": true},
    "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": true},
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000, "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false
}
"""},
    "a file of axolotl": PLAIN_AXOLOTL,
    "one GPU": {"one.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: 'no'\nnum_processes: 1\nfsdp_config: {}\n"},
}  # fmt: skip

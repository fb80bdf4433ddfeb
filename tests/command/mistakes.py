"""What people type by mistake, and the files that they hand to the program by mistake."""

# Files that somebody could hand to the program by mistake.
BAD_FILES = {
    "empty.json": "",
    "cut.json": '{"format_version": "1.0", "name": ',
    "types.json": '{"format_version": "1.0", "name": 3, "modules": {}}',
    "nan.json": '{"format_version": "1.0", "dimensions": {"batch": NaN}}',
    "list.json": "[1, 2]\n",
    "binary.json": "\x00\x01\x02",
    "hub.json": '{"architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "hidden_size": 4096}',
    "deepspeed.json": '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}',
    "accelerate.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n",
    "escapes.json": '{"format_version": "1.0", "\\u001b[31mred": 3, "dimensions": {"\x9b\u202e": 1}}',
    "plan_types.json": '{"format_version": "1.0", "model": "m", "mesh": {"replicate": 0, "shard": 9223372036854775808},'
                       ' "units": [{"modules": ["a.{3..1}"]}], "optimiser": {}}',
    "plan_version.json": '{"format_version": "7.0", "model": {"name": "m", "file": "qwen3_tts"},'
                         ' "mesh": {"replicate": 1, "shard": 1}, "units": [{"modules": [""]}]}',
}

# A shell's worth of mistakes: all end with exit code 2, and leave no file behind.
BAD_COMMANDS = """

missing.json --gpus 4 --mem 16G
folder --gpus 4 --mem 16G
empty.json --gpus 4 --mem 16G
cut.json --gpus 4 --mem 16G -o out.json
types.json --gpus 4 --mem 16G
nan.json --gpus 4 --mem 16G
list.json --gpus 4 --mem 16G
binary.json --gpus 4 --mem 16G
hub.json --gpus 4 --mem 16G
deepspeed.json --gpus 4 --mem 16G
accelerate.yaml --gpus 4 --mem 16G
escapes.json --gpus 4 --mem 16G
plan.json --gpus 4 --mem 16G
mlp --cluster hub.json
Qwen/Qwen3-900B --gpus 4 --mem 16G
ties.json --gpus 4 --mem 16G
keys.json --gpus 4 --mem 16G
qwen_tts --gpus 4 --mem 16G
qwen3_tts
qwen3_tts --gpus 4
qwen3_tts --gpus 0 --mem 16G
qwen3_tts --gpus -1 --mem nanG
qwen3_tts --gpus 1.5 --mem infG
qwen3_tts --gpus 4 --mem 80
qwen3_tts --gpus 4 --mem 0G
qwen3_tts --gpus 4 --mem 9223372036854775808B
qwen3_tts --gpus 9223372036854775808 --mem 16G
qwen3_tts --gpus 4 --mem 16G --nodes 0
qwen3_tts --gpu T5 --gpus 4
qwen3_tts --cluster missing.json
qwen3_tts --cluster dgx_z100
qwen3_tts --cluster empty.json --gpu T4
qwen3_tts --gpus 4 --mem 16G --intra-link pci --network token-ring --nic-bandwidth 400Gbps
qwen3_tts --gpuss 4 --memm 16G --wrp root
qwen3_tts --gpus 4 --mem 16G --tp 2 --peft 8 --float8 --deepspeed ds.json
qwen3_tts --gpus 4 --mem 16G --seq k --host-mem 64
qwen3_tts --mem --gpus 4
qwen3_tts --gpus
qwen3_tts --gpus= --mem 16G
qwen3_tts --gpus 4 --mem= --set seq=64
qwen3_tts -.5 --gpus 4 --mem 16G
qwen3_tts --gpus 4 --mem 16G --freeze -.5
qwen3_tts extra --gpus 4 --mem 16G
--gpus 4 --mem 16G
smulate plan.json
qwen3_tts --gpus 4 --mem 16G --trainable nothing --freeze 'no.*'
--trainable 'talker.*' qwen3_tts
qwen3_tts --gpus 4 --mem 16G --set foo=3
qwen3_tts --gpus 4 --mem 16G --set batch --set =3 --set seq=nan --set frames=-1
qwen3_tts --gpus 4 --mem 16G --batch 0 --seq 9223372036854775808 --accumulate x
qwen3_tts --gpus 4 --mem 16G --recipe spt
qwen3_tts --gpus 4 --mem 16G --precision bf61 --optimizer adamx --optimizer-state-dtype 4bit --optimizer-impl fusedd --clip-grad-norm x
qwen3_tts --gpus 4 --mem 16G --optimizer sgd --optimizer-impl fused
qwen3_tts --gpus 4 --mem 16G --activation-checkpointing some --reshard maybe --offload perhaps --flavor keras --reduce-dtype int8
qwen3_tts --gpus 4 --mem 16G --strategy FULLSHARD --shard 2
qwen3_tts --gpus 4 --mem 16G --shard 2 --replicate 3
qwen3_tts --gpus 4 --mem 16G --replicate 3
qwen3_tts --gpus 4 --mem 16G --shard 3
qwen3_tts --gpus 4 --gpus 8 --mem 16G
qwen3_tts --gpus 4 --mem 16G --json --format csv
qwen3_tts --gpus 4 --mem 16G --format xml --color sometimes
--json=3 qwen3_tts
qwen3_tts --gpus 4,x --gpu L4,,T4 --at-most 0 --objective speed --price L4=-1,L4=2,3 --seq k
qwen_tts --gpus 4,8 --gpu L40,T5,T4
qwen3_tts --gpus 4,8 --gpu T4 --at-most 2
qwen3_tts --gpus 4,8 --gpu T4 --shard 3
qwen3_tts --gpus 4 --gpu T4,L4 --objective cost --price T4=0.5
qwen3_tts --gpus 4 --gpu T4,L4 --price T4=0.5,A10G=1,V99=2
qwen3_tts --gpus 4,8 --mem 16G --cluster -
qwen3_tts --gpus 4 --mem 16G -o plan.json
qwen3_tts --gpus 4 --mem 16G -o no/where.json
qwen3_tts --gpus 4 --mem 16G -o folder
simulate
simulate missing.json
simulate folder
simulate empty.json
simulate cut.json
simulate plan_types.json
simulate plan_version.json
simulate other_model.json
simulate other_unit.json
simulate plan.json --gpus 8
simulate plan.json --gpus 4,8 --price 3
simulate other_unit.json --gpus 8 --rank none
simulate flash_fp32.json
simulate fused_sgd.json
simulate output_dtype.json
explain other_model.json
export plan.json --to accelerate -o out.yaml
export plan.json --to torchtitan --nearest near.json
export plan.json --to deepspeed
export plan.json --to chrome --nearest near.json
export plan.json --to accelrate
schema plann
schema --gpus 4
gpus extra
completions tcsh
"""

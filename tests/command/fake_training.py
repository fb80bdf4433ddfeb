#!/usr/bin/env python3
"""Stands in for a rehearsed training script: does what its first word says, and writes the record that the hook in Python
would have written. Needs no torch. Run by cli_rehearse_test.py."""

import json
import os
import signal
import subprocess
import sys
import time

GIB = 1 << 30
RECORD = os.environ.get("FSDP_REHEARSAL_RECORD", "")
RANK = int(os.environ.get("FSDP_REHEARSAL_RANK", "0"))
WORLD = int(os.environ.get("FSDP_REHEARSAL_WORLD_SIZE", os.environ.get("FAKE_WORLD", "4")))
LOCAL = int(os.environ.get("FSDP_REHEARSAL_LOCAL_WORLD_SIZE", str(WORLD)))
CONTEXT = int(os.environ.get("STUB_GPU_CONTEXT_BYTES", "0"))


def peaks(reserved):
    return {"requested": reserved - 700, "allocated": reserved - 512, "active": reserved - 512, "reserved": reserved,
            "device": reserved + CONTEXT}


def record(reserved=10 * GIB, **changes):
    """The record of a run that reserves so many bytes."""
    frames = [{"file": "/env/lib/python3.11/site-packages/torch/nn/functional.py", "line": 2, "function": "silu"},
              {"file": os.path.abspath("train.py"), "line": 41, "function": "main"}]
    unit = {"class": "Block", "parameters": 9, "elements": 1_000_000_000}
    contents = {
        "format_version": "1.0",
        "end": {"why": "steps_reached", "exception": None, "exit_status": None},
        "environment": {"python": "3.11.2", "torch": "2.11.0+cu130", "cuda": "13.0", "packages": {},
                        "torch_imported": True, "cuda_initialized": True},
        "job": {"argv": sys.argv, "rank": RANK, "world_size": WORLD, "local_rank": RANK % LOCAL,
                "local_world_size": LOCAL, "backends": ["nccl"]},
        "steps": 3, "seconds": {"total": 1.5, "steps": [0.5, 0.5, 0.5]}, "host_peak_bytes": GIB,
        "gpu": {"name": os.environ.get("STUB_GPU_NAME", ""), "total_bytes": int(os.environ.get("STUB_GPU_BYTES", "0"))},
        "memory": {
            "peaks": peaks(reserved), "device_terms": [{"name": "CUDA context", "bytes": CONTEXT}],
            "phases": [{"phase": "initialization", **peaks(GIB)}, {"phase": "first_step", **peaks(reserved - GIB)},
                       {"phase": "steady_step", **peaks(reserved)}],
            "at_end_requested": GIB, "at_end_allocated": GIB, "cache_flushes": 0, "out_of_memory_errors": 0,
            "peak": {"phase": "backward", "step": 2, "module": "model.layers.3.mlp", "at": frames[1], "stack": frames},
            "categories": {"parameters": reserved // 8, "activations": reserved // 2, "other": reserved - reserved // 8 - reserved // 2 - 700},
            "at_peak": [{"file": os.path.abspath("train.py"), "line": 41, "function": "main", "count": 12,
                         "framework": "torch/nn/functional.py:3504 cross_entropy", "bytes": reserved // 2},
                        {"file": "/env/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py",
                         "line": 180, "function": "forward", "framework": "torch/nn/modules/linear.py:134 forward", "count": 64,
                         "bytes": reserved // 4},
                        {"file": "", "line": 0, "function": "", "count": 90, "bytes": reserved // 8}],
            "over_step": {"allocated": [GIB * (1 + i % 40) // 4 for i in range(80)],
                          "marks": [{"phase": "forward", "index": 0}, {"phase": "backward", "index": 40},
                                    {"phase": "optimizer", "index": 70}]},
        },
        "collectives": {"steady_step": [{"kind": kind, "dtype": "bfloat16", "elements": GIB // 2, "payload_bytes": GIB,
                                         "group_size": WORLD, "unit": "layers.0", "phase": "forward"}
                                        for kind in ("all_gather", "all_gather", "reduce_scatter")]},
        "applied": {
            "wrappers": [{"class": "torch.distributed.fsdp.FSDPModule", "name": "FSDP2", "model": "Llama",
                          "version": "2.11.0", "strategy": "FULL_SHARD", "zero_stage": None,
                          "units": [{"name": f"layers.{i}", **unit} for i in range(7)] + [{**unit, "name": "(root)"}],
                          "mixed_precision": {"param_dtype": "torch.bfloat16", "reduce_dtype": "torch.float32"},
                          "reshard_after_forward": True, "offload": False, "autocast": ["torch.bfloat16"]}],
            "parameters": 8_000_000_000, "trainable_parameters": 8_000_000_000,
            "parameter_dtypes": {"torch.float32": 8_000_000_000},
            "optimizers": [{"class": "torch.optim.adamw.AdamW", "foreach": True, "fused": None, "parameters": 72}]},
        "warnings": [],
        "limits": {"readbacks": [], "missing_functions": [], "allocator_event_queries": 0, "cudnn_plans": 0,
                   "triton": False, "cuda_graphs": False, "data_dependent_routing": False},
    }
    contents.update(changes)
    return contents


def write(contents):
    with open(RECORD, "w", encoding="utf-8") as out:
        out.write(contents if isinstance(contents, str) else json.dumps(contents))


def raised(kind, message, why="exception", **changes):
    """The record of a script that an exception ended."""
    trace = f'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    main()\n{kind}: {message}\n'
    print(trace, file=sys.stderr)
    write(record(end={"why": why, "exception": {"type": kind, "message": message, "types": [kind], "traceback": trace}},
                 **changes))


def out_of_memory(phases=None, **changes):
    contents = record(**changes)
    if phases is not None:
        contents["memory"]["phases"] = phases
    failed = {"bytes": 2 * GIB, "device_free": 3 * GIB // 2, "at": contents["memory"]["peak"]["at"], "phase": "backward", "step": 1, "module": "model.layers.30.mlp",
              "stack": contents["memory"]["peak"]["stack"]}
    raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
           "14.56 GiB of which 1.50 GiB is free.", "out_of_memory", **changes,
           memory={**contents["memory"], "failed_allocation": failed, "out_of_memory_errors": 1})


def wait_deaf(seconds):
    """Sleeps, and does not listen to those who ask for an end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    note_process("deaf")
    time.sleep(seconds)


def note_process(name):
    with open(os.environ["FAKE_NOTES"] + "/" + name, "w", encoding="utf-8") as out:
        out.write(str(os.getpid()))


def leave_daemon():
    """Starts a process that leaves the session and outlives this one."""
    subprocess.Popen([sys.executable, __file__, "deaf"], start_new_session=True)
    while not os.path.exists(os.environ["FAKE_NOTES"] + "/deaf"):
        time.sleep(0.01)
    write(record())


def waits_for_interrupt():
    with open(os.environ["FSDP_REHEARSAL_PROGRESS"], "w", encoding="utf-8") as out:
        out.write("step 2 of 3")
    note_process("waits")
    try:
        time.sleep(3600)
    except KeyboardInterrupt:
        raised("KeyboardInterrupt", "")
        note_process("interrupted")


def waits_beside_daemon():
    subprocess.Popen([sys.executable, __file__, "deaf"], start_new_session=True)
    while not os.path.exists(os.environ["FAKE_NOTES"] + "/deaf"):
        time.sleep(0.01)
    note_process("waits_beside_daemon")
    time.sleep(100)


def untidy():
    """Several models without a wrapper, lines that read the same, a path elsewhere, an error that was caught, and no step."""
    contents = record()
    wrapper = {**contents["applied"]["wrappers"][0], "class": "none", "name": "plain", "units": [], "strategy": None,
               "mixed_precision": None, "reshard_after_forward": None, "autocast": []}
    memory = contents["memory"]
    row = {"file": "/data/of/somebody/with/a/long/name/projects/train.py", "line": 9, "function": "main", "count": 2,
           "framework": "torch/optim/adam.py:{} _init_group", "bytes": GIB}
    failed = {"bytes": GIB, "device_free": 0, "at": memory["peak"]["at"], "phase": "backward", "step": 1, "module": "", "stack": []}
    write(record(steps=0, memory={**memory, "failed_allocation": failed, "out_of_memory_errors": 3, "at_peak": [
                     {**row, "framework": row["framework"].format(line)} for line in (170, 176)]},
                 applied={**contents["applied"], "wrappers": [{**wrapper, "model": m} for m in ("Linear", "Head", "Linear")]}))


def timing():
    """Memory that depends on when kernels finish."""
    hold = os.environ["STUB_GPU_EVENTS"] == "hold"
    limits = {**record()["limits"], "allocator_event_queries": 5}
    write(record((12 if hold else 10) * GIB, limits=limits))


def timing_decides():
    if os.environ["STUB_GPU_EVENTS"] == "hold":
        out_of_memory()
    else:
        timing()


def environment():
    """Shows what this process was given."""
    names = ("FSDP_", "STUB_", "CUDA_VISIBLE", "RANK", "WORLD", "OMP", "PYTHONPATH")
    shown = {name: value for name, value in os.environ.items() if name.startswith(names)}
    with open(os.environ["FAKE_NOTES"] + f"/environment-{RANK}", "w", encoding="utf-8") as out:
        json.dump(shown, out)
    write(record())


def files():
    for name in ("SNAPSHOT", "TRACE"):
        with open(os.environ["FSDP_REHEARSAL_" + name], "w", encoding="utf-8") as out:
            out.write(f"{name} of rank {RANK}")
    write(record((10 + RANK) * GIB))


def snapshot():
    with open(os.environ["FSDP_REHEARSAL_SNAPSHOT"], "w", encoding="utf-8") as out:
        out.write("." * (1 << 20))
    write(record())


def fills_disk():
    """Writes until nothing more fits, and dies of it before it says what it did."""
    with open("big", "wb") as out:
        while True:
            out.write(bytes(1 << 16))


def uneven():
    write(record((10 + RANK) * GIB))


def fails_on_rank_2():
    raised("ValueError", "rank 2 has no data") if RANK == 2 else uneven()


def batch():
    """2 GiB, and 1.5 GiB for each sample; with --lose 4 rank 1 fails from 4 samples on."""
    size = int(sys.argv[sys.argv.index("--batch-size") + 1])
    reserved = 2 * GIB + 3 * GIB // 2 * size
    if "--refuse" in sys.argv and size > 8:
        raised("ValueError", "the data has 8 samples")
    elif RANK == 1 and "--lose" in sys.argv and size >= int(sys.argv[sys.argv.index("--lose") + 1]):
        raised("ValueError", "rank 1 has no data")
    elif reserved + CONTEXT > int(os.environ["STUB_GPU_BYTES"]):
        out_of_memory()
    else:
        write(record(reserved))


def loud():
    for _ in range(20000):
        print("x" * 99)
    write(record())


def plan():
    """What python/fsdp_plan_runner would do; its job is the second word."""
    with open(sys.argv[2], encoding="utf-8") as job:
        contents = json.load(job)
    with open(os.environ["FAKE_NOTES"] + "/job", "w", encoding="utf-8") as out:
        json.dump(contents, out)
    write(record())


def plan_oom():
    """A plan that runs out of memory in its first step."""
    memory = record()["memory"]
    out_of_memory(memory["phases"][:1], steps=0, collectives={"steady_step": []})


def refused_plan():
    print("the plan has an op that the runner does not know", file=sys.stderr)
    write(record(end={"why": "script_ended", "exception": None, "exit_status": 2},
                 job={"argv": ["python", "-m", "fsdp_plan_runner", "job.json"], "rank": 0, "world_size": 4}))
    sys.exit(2)


def capture():
    """What the recorder writes of a model: the second word is a capture of it, or why there is none."""
    if sys.argv[2].endswith(".json"):
        with open(sys.argv[2], encoding="utf-8") as given:
            text = given.read()
    else:
        text = json.dumps({"format_version": "1.0", "kind": "captured_model", "error": sys.argv[2]})
    with open(os.environ["FSDP_REHEARSAL_CAPTURE"], "w", encoding="utf-8") as out:
        out.write(text)
    write(record())


def exit_alone():
    """As `raise SystemExit("no data in /data")` does: the hook in Python cannot know the exit status."""
    write(record(end={"why": "script_ended", "exception": None, "exit_status": None}))
    raise SystemExit("no data in /data")


MODES = {
    "fits": lambda: write(record()),
    "oom": out_of_memory,
    "raises": lambda: raised("ValueError", "shapes do not match"),
    "lacks_in_worker": lambda: raised("ImportError", "Caught ModuleNotFoundError in DataLoader worker process 0.\nOriginal Traceback "
                                      "(most recent call last):\n  File \"data.py\", line 3, in read\n"
                                      "ModuleNotFoundError: No module named 'pandas'\n"),
    "checks": lambda: raised("AssertionError", "loss is 0.0", limits={**record()["limits"], "readbacks": [
        {"operation": "item", "file": "train.py", "line": 5, "count": 3, "phase": "forward", "steers_sizes": False},
        {"operation": "item", "file": "train.py", "line": 9, "count": 3, "phase": "forward", "steers_sizes": False}]}),
    "endless": lambda: raised("fsdp_rehearsal.loops.EndlessLoop", "A loop read the same value and no answer ends it"),
    "untrained": lambda: write(record(steps=0)),
    "network": lambda: raised("requests.exceptions.ConnectionError", "HTTPSConnectionPool(host='example.org')"),
    "other_torch": lambda: raised("ImportError", "cannot import name 'fully_shard' from 'torch.distributed.fsdp'"),
    "no_torch": lambda: raised("ModuleNotFoundError", "No module named 'torch'"),
    "cpu_torch": lambda: raised("AssertionError", "Torch not compiled with CUDA enabled",
                                environment={"python": "3.11.2", "torch": "2.11.0+cpu", "cuda": None, "packages": {},
                                             "torch_imported": True, "cuda_initialized": False}),
    "imports_nothing": lambda: write({"format_version": "1.0", "end": {"why": "script_ended", "exception": None},
                                      "environment": {"python": "3.11.2", "torch": None, "torch_imported": False},
                                      "job": {"rank": 0, "world_size": 1}}),
    "crashes": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exits": lambda: (print("usage: train.py", file=sys.stderr), sys.exit(64)),
    "exits_with_record": exit_alone,
    "silent": lambda: None,
    "cut_record": lambda: write(json.dumps(record())[:500]),
    "wrong_record": lambda: write(record(steps="three", end={"why": "tired"})),
    "deaf": lambda: wait_deaf(100),
    "waits": waits_for_interrupt,
    "waits_beside_daemon": waits_beside_daemon,
    "daemon": leave_daemon,
    "timing": timing,
    "timing_decides": timing_decides,
    "environment": environment,
    "files": files,
    "snapshot": snapshot,
    "uneven": uneven,
    "untidy": untidy,
    "fills_disk": fills_disk,
    "fails_on_rank_2": fails_on_rank_2,
    "batch": batch,
    "capture": capture,
    "loud": loud,
    "plan": plan,
    "plan_oom": plan_oom,
    "refused_plan": refused_plan,
}

if __name__ == "__main__":
    MODES[sys.argv[1]]()

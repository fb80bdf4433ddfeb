"""Rules of fsdp-plan check against the programs themselves: accelerate's launcher and plugin, and TrainingArguments.

usage: check_programs_test.py    (with accelerate, transformers and PyYAML; exit 77 without)

What a rule calls refused raises here, and its mended file does not. What it calls ignored leaves the plugin as it is without.
"""

import os
import pathlib
import sys
import tempfile
import warnings

sys.dont_write_bytecode = True
warnings.simplefilter("ignore")
from check_cases import CASES, FSDP1, FSDP2  # noqa: E402

try:
    import torch
    import yaml
    from accelerate.commands import launch
    from accelerate.utils import FullyShardedDataParallelPlugin, dataclasses
    from accelerate.utils import launch as launch_utils
    from transformers import TrainingArguments
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

REFUSED_LAUNCHES = ("invalid-value", "launch-key-missing", "unquoted-no", "fsdp2-reshard-value", "sync-module-states-off",
                    "checkpoint-offload-alone", "local-state-dict")
REFUSED_ARGUMENTS = ("fp16-and-bf16", "unquoted-no", "best-model-strategy", "trainer-fsdp-text")
OF_TRL = ("model_name_or_path", "dataset_name")


def plugin_of(text):
    """The plugin that a script sees under `accelerate launch --config_file`."""
    for name in [name for name in os.environ if name.startswith(("FSDP_", "ACCELERATE_"))]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "launch.yaml"
        path.write_text(text, encoding="utf-8")
        arguments = launch.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
        arguments, _, _ = launch._validate_launch_command(arguments)
    environment = launch_utils.prepare_multi_gpu_env(arguments)
    os.environ.update({name: value for name, value in environment.items() if name.startswith(("FSDP_", "ACCELERATE_"))})
    return FullyShardedDataParallelPlugin()


def arguments_of(text):
    values = {key: value for key, value in yaml.safe_load(text).items() if key not in OF_TRL}
    return TrainingArguments(**{"output_dir": "out", "report_to": [], "use_cpu": True, **values})


def is_refused(function, text):
    try:
        function(text)
    except Exception:  # noqa: BLE001
        return True
    return False


def text_of(files):
    return next(iter(files.values()))


def problems_of(rules, function):
    for rule in rules:
        for severity, place, failing, passing in CASES[rule]:
            is_of_launch = "distributed_type" in text_of(failing) + text_of(passing)
            if severity != "error" or len(failing) > 1 or is_of_launch != (function is plugin_of):
                continue
            if not is_refused(function, text_of(failing)):
                yield f"{rule} {place}: it is not refused:\n{text_of(failing)}"
            if is_refused(function, text_of(passing)):
                yield f"{rule} {place}: it is refused:\n{text_of(passing)}"


def problems_of_ignored():
    def facts(text):
        plugin = plugin_of(text)
        return (plugin.sharding_strategy, plugin.reshard_after_forward, plugin.backward_prefetch, plugin.forward_prefetch,
                plugin.use_orig_params, plugin.sync_module_states)  # fmt: skip

    for rule, plain in (("fsdp2-ignores-key", FSDP2), ("fsdp1-ignores-reshard", FSDP1)):
        for _, place, failing, _ in CASES[rule]:
            if facts(text_of(failing)) != facts(plain):
                yield f"{rule} {place} is not ignored:\n{text_of(failing)}"
    if facts(FSDP2) == facts(FSDP2 + "  fsdp_reshard_after_forward: false\n"):
        yield "Nothing differs where something should."


def main():
    # The plugin asks for a GPU, and the launcher for a free port.
    dataclasses.is_cuda_available = lambda *_, **__: True
    torch.cuda.current_device = lambda: 0
    launch_utils.is_port_in_use = lambda _: False
    problems = [*problems_of(REFUSED_LAUNCHES, plugin_of), *problems_of(REFUSED_ARGUMENTS, arguments_of), *problems_of_ignored()]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

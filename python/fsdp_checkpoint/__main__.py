"""python -m fsdp_checkpoint to-dcp|from-dcp|to-safetensors|to-hf SOURCE OUT

Exit: 0 done, 2 if the source is no checkpoint or the output exists (nothing is overwritten).
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from fsdp_checkpoint.convert import from_dcp, model_of_plan, quiet, to_dcp, to_safetensors
from fsdp_checkpoint.hugging_face import to_hugging_face
from fsdp_checkpoint.parts import NoCheckpoint
from fsdp_plan_runner.stored import NotReadable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fsdp_checkpoint",
                                     description="Turns checkpoints of fsdp-exec and of PyTorch into each other.")
    parser.add_argument("what", choices=("to-dcp", "from-dcp", "to-safetensors", "to-hf"))
    parser.add_argument("source", type=pathlib.Path, help="folder of a checkpoint: .../step-00000010, or of DCP")
    parser.add_argument("out", type=pathlib.Path, help="folder that becomes the other; of to-safetensors: a file")
    parser.add_argument("--plan", type=pathlib.Path,
                        help="from-dcp: a plan of the model, where the checkpoint is not of to-dcp and does not name it")
    parser.add_argument("--step", type=int, help="from-dcp: steps that are done; as the optimizer counts when not given")
    parser.add_argument("--seed", type=int, help="from-dcp: of the data to come")
    parser.add_argument("--micro-batches", type=int, help="from-dcp: that all ranks have trained, without a token file")
    parser.add_argument("--samples", type=int, help="from-dcp: of the token file, that all ranks have trained")
    parser.add_argument("--lr", type=float, help="from-dcp: the learning rate to go on with")
    parser.add_argument("--config", type=pathlib.Path,
                        help="to-hf: config.json of the model, or its folder, whose tokenizer is copied, too")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="to-hf: as trained when not given")
    parser.add_argument("--max-shard-bytes", type=int, default=5_000_000_000, help="to-hf: of a file (5000000000)")
    parser.add_argument("--optimizer", choices=("adamw", "adam", "sgd"), help="from-dcp: else by its moments")
    given = parser.parse_args()
    try:
        if given.out.exists() or given.out.is_symlink():
            raise NoCheckpoint(f"{given.out}: it is there already.")
        with quiet():
            if given.what == "to-dcp":
                to_dcp(given.source, given.out)
            elif given.what == "to-safetensors":
                to_safetensors(given.source, given.out)
            elif given.what == "to-hf":
                if given.config is None:
                    raise NoCheckpoint("to-hf needs --config: config.json of the model that was trained, or its folder.")
                to_hugging_face(given.source, given.out, given.config, given.dtype, given.max_shard_bytes)
            else:
                named = model_of_plan(given.plan) if given.plan else {}
                assumed = from_dcp(given.source, given.out, **named, step=given.step, seed=given.seed, samples=given.samples,
                                   micro_batches=given.micro_batches, learning_rate=given.lr, optimizer=given.optimizer)
                if assumed:
                    print(f"note: {given.source} does not hold everything that a resumed run needs. Assumed: "
                          + ", ".join(assumed) + ".", file=sys.stderr)
    except (NotReadable, OSError) as error:
        # Control characters in a file's words are escaped.
        said = "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(error))
        print(f"error: {said}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

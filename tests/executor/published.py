"""Trains a random model of transformers with fsdp-exec, from its safetensors, and computes the differences of loss and
gradients from the published code."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from checkpoints import tensors_of
from parity_cases import Case
from published_models import Published, Tensors
from ranks import expanded, parameters_of, run_executor  # It also knows the runner's place.

from fsdp_checkpoint.convert import to_safetensors
from fsdp_checkpoint.hugging_face import to_hugging_face
from fsdp_checkpoint.parts import NoCheckpoint
from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.synthetic import input_values

SEED = 7
LEARNING_RATE = 1e-3
# A power of two, so that a step of plain SGD reveals the gradients: parameter - rate * gradient is the gradient to the last
# bits of fp32.
RATE = float(1 << 24)
# A share of the largest gradient: smaller ones are the rounding errors of a zero, such as a key's bias.
ROUNDED_ZERO = 1e-5
HALF_UNIT = 2.0**-8  # Half a unit in the last place of a number in bf16, relative, at most.
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


@dataclass
class Agreement:
    """Relative differences from the published code."""

    loss: float
    logits: float  # The worst over all cross entropies, |x - x'| / |x'| in the Euclidean norm.
    gradient: float  # The worst over all parameters: |g - g'| / |g'| in the Euclidean norm.
    worst: str  # The name of that parameter.
    missing: list[str]  # Parameters that have a gradient in only one of the two.
    noise: float  # The worst gradient of the published code in this dtype, compared with its own in fp32.
    loss_noise: float  # The same for its loss; in bf16 at least half a unit in the last place, to which it is rounded.


def spec_of(model: Published, dtype: str) -> dict[str, Any]:
    return without_dropout(Case("published", model.spec, 1, dtype=dtype).spec())


def without_dropout(value: Any) -> Any:
    """The spec without dropout: random numbers cannot be compared."""
    if isinstance(value, dict):
        return {key: 0 if key in ("dropout", "probability") else without_dropout(inner) for key, inner in value.items()}
    return [without_dropout(inner) for inner in value] if isinstance(value, list) else value


def randomized(model: Published, generator: torch.Generator) -> torch.nn.Module:
    """Initialized like the published code, but with larger weights, so that attention prefers some positions and caps have an
    effect; with biases and heads other than zero, and norms other than one."""
    made = model.make()
    for parameter in made.parameters():
        if parameter.dim() > 1 and parameter.any():
            parameter.data *= model.gain
        else:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return made


def save(model: torch.nn.Module, folder: pathlib.Path) -> None:
    """Saves it as its own library does."""
    if hasattr(model, "save_pretrained"):
        model.save_pretrained(folder)
        return
    from safetensors.torch import save_file

    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")


def save_as_once(model: Published, code: torch.nn.Module, folder: pathlib.Path) -> None:
    """Replaces the existing file. Raises AssertionError if the published code does not read it."""
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    tensors = load_file(file)
    once = model.once(tensors)
    assert once.keys() != tensors.keys()
    save_file(once, file, metadata={"format": "pt"})
    read, info = type(code).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    theirs = read.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in code.state_dict().items())


def write_plan(model: Published, folder: pathlib.Path, spec: dict[str, Any], plan: dict[str, Any]) -> pathlib.Path:
    case = Case("published", model.spec, 1, plan, units=[{"modules": [""]}], dimensions=model.dimensions)
    spec_file, plan_file = folder / "spec.json", folder / "plan.json"
    spec_file.write_text(json.dumps(spec), encoding="utf-8")
    plan_file.write_text(json.dumps(case.plan_of(str(spec_file))), encoding="utf-8")
    return plan_file


def tensor_of(stored: tuple[str, tuple[int, ...], bytes]) -> torch.Tensor:
    dtype, shape, data = stored
    return torch.frombuffer(bytearray(data), dtype=DTYPES[dtype]).view(shape).float()


def plan_members(model: Published, dtype: torch.dtype, optimizer: dict[str, Any]) -> dict[str, Any]:
    members: dict[str, Any] = {"optimizer": optimizer}
    if dtype != torch.float32:
        name = str(dtype).removeprefix("torch.")
        members |= {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": name, "reduce_dtype": "float32"}}
    if not model.upcasts:
        members["runtime"] = {"implementations": {"upcast_logits": False}}
    return members


class Trial:
    """A random model in both programs. `dtype`: the dtype of both computations; parameters and gradients are fp32."""

    def __init__(self, model: Published, planner: pathlib.Path, folder: pathlib.Path, optimizer: dict[str, Any],
                 dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(SEED)
        self.model, self.folder, self.dtype = model, folder, dtype
        self.code = randomized(model, torch.Generator().manual_seed(SEED)).train()
        self.before = {name: tensor.clone() for name, tensor in self.code.state_dict().items()}
        save(self.code, folder / "weights")
        self.plan = write_plan(model, folder, spec_of(model, "float32"), plan_members(model, dtype, optimizer))
        self.described = expanded(planner, json.loads(self.plan.read_text(encoding="utf-8")))

    def executed(self, executor: pathlib.Path, steps: int, rate: float, options: tuple[str, ...] = (),
                 weights: pathlib.Path | None = None) -> dict[str, Any]:
        return run_executor(executor, self.plan, 1, self.folder, "executor",
                            ["--seed", str(SEED), "--steps", str(steps), "--lr", str(rate),
                             "--weights", str(weights or self.folder / "weights"), *options])

    def inputs(self, step: int) -> dict[str, torch.Tensor]:
        """fsdp-exec's inputs from the seed for a step, counted from 0."""
        model = ExpandedModel(self.described)
        made = {}
        for tensor in model.inputs:
            named = model.tensors[tensor].dtype
            dtype = getattr(torch, named) if named else torch.float32
            made[model.tensors[tensor].name] = input_values(model, tensor, dtype, SEED, step)
        return made


def compare(model: Published, executor: pathlib.Path, planner: pathlib.Path, folder: pathlib.Path,
            dtype: torch.dtype = torch.float32) -> Agreement:
    """Loss and gradients of one step."""
    sgd = {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0, "implementation": "for_loop"}
    trial = Trial(model, planner, folder, sgd, dtype)
    if model.once and dtype == torch.float32:
        save_as_once(model, trial.code, folder / "weights")
    ours = trial.executed(executor, 1, RATE, ("--save-logits", str(folder / "logits")))
    gradients = {name: (trial.before[name].float() - tensor_of(stored)) / RATE
                 for name, stored in ours["parameters"].items()}
    noise = loss_noise = 0.0
    inputs = trial.inputs(0)
    if dtype != torch.float32:
        exact_loss = model.loss(trial.code, inputs)
        exact_loss.backward()
        exact = gradients_of(trial.code)
        trial.code.zero_grad()
        # Not .to(dtype) of the whole: from_pretrained also leaves buffers, such as a rotary table's frequencies, in fp32.
        for parameter in trial.code.parameters():
            parameter.data = parameter.data.to(dtype)
        inputs = {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    with noted_logits() as logits:
        loss = model.loss(trial.code, inputs)
    loss.backward()
    theirs = gradients_of(trial.code)
    if dtype != torch.float32:
        noise = worst_difference(exact, theirs)[0]
        loss_noise = max(HALF_UNIT, abs(loss.item() / exact_loss.item() - 1))
    worst, where = worst_difference(gradients, theirs)
    missing = [name for name, gradient in gradients.items() if name not in theirs and gradient.any()]
    tied = {id(parameter): name for name, parameter in trial.code.named_parameters(remove_duplicate=False)
            if name in gradients}
    missing += [name for name, parameter in trial.code.named_parameters() if parameter.grad is not None
                and id(parameter) not in tied]
    return Agreement(abs(ours["steps"][0][0]["loss"] / loss.item() - 1), worst_logits(folder / "logits", logits), worst,
                     where, missing, noise, loss_noise)


@contextlib.contextmanager
def noted_logits() -> Iterator[list[torch.Tensor]]:
    """Records the arguments of torch.nn.functional.cross_entropy, for any caller."""
    functional = torch.nn.functional
    real, noted = functional.cross_entropy, []

    def cross_entropy(logits: torch.Tensor, *words: Any, **named: Any) -> torch.Tensor:
        noted.append(logits.detach().float())
        return real(logits, *words, **named)

    functional.cross_entropy = cross_entropy
    try:
        yield noted
    finally:
        functional.cross_entropy = real


def worst_logits(path: pathlib.Path, theirs: list[torch.Tensor]) -> float:
    stored = parameters_of(path)
    ours = [tensor_of(stored[f"loss.{i}"]) for i in range(len(stored))]
    assert ours and [each.numel() for each in ours] == [each.numel() for each in theirs], (ours, theirs)
    return max(float((a.flatten() - b.flatten()).norm() / b.norm()) for a, b in zip(ours, theirs, strict=True))


def gradients_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """In fp32, under all names of a tied parameter."""
    return {name: parameter.grad.float() for name, parameter in model.named_parameters(remove_duplicate=False)
            if parameter.grad is not None}


def worst_difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> tuple[float, str]:
    """The largest relative difference of the common ones, and its name."""
    norms = {name: float(gradient.norm()) for name, gradient in theirs.items()}
    least = ROUNDED_ZERO * max(norms.values())
    worst, where = 0.0, ""
    for name in ours.keys() & theirs.keys():
        difference = float((ours[name] - theirs[name]).norm()) / max(norms[name], least)
        if not difference <= worst:  # Also if it is not a number.
            worst, where = difference, name
    return worst, where


@dataclass
class Back:
    """A checkpoint of fsdp-exec in the published code, and from there in fsdp-exec again."""

    tensors: int  # Number of tensors that are equal in every bit in all three.
    loss: float  # The relative difference of the two computed losses.


def in_the_published_code(model: Published, step: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, Tensors]:
    """Exports the checkpoint, and returns the state of the published code that has read it. Raises AssertionError if the code
    has filled in or left out tensors."""
    out = folder / "exported"
    if not model.is_folder:
        from safetensors.torch import load_file

        to_safetensors(step, out)
        code = model.make()
        missing, unexpected = code.load_state_dict(load_file(out), strict=False)
        tied = [name for name in missing if any(part is code.get_parameter(name) for other, part in
                                                code.named_parameters(remove_duplicate=False) if other not in missing)]
        assert not unexpected and tied == missing, (missing, unexpected)
        return out, code.state_dict()
    to_hugging_face(step, out, folder / "weights")
    refuse_other_sizes(step, folder)
    read, info = type(model.make()).from_pretrained(out, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return out, read.state_dict()


def refuse_other_sizes(step: pathlib.Path, folder: pathlib.Path) -> None:
    """A configuration that transformers would fill with random values is not written."""
    config = json.loads((folder / "weights" / "config.json").read_text(encoding="utf-8"))
    layers = next(key for key in ("num_hidden_layers", "n_layer", "num_layers") if key in config)
    for key in "vocab_size", layers:
        other = folder / "other.json"
        other.write_text(json.dumps({**config, key: config[key] + 1}), encoding="utf-8")
        try:
            to_hugging_face(step, folder / "refused", other)
        except NoCheckpoint as refused:
            assert f"--config: {key} is {config[key] + 1}" in str(refused), refused
        else:
            raise AssertionError(f"another {key} is written")


def there_and_back(model: Published, trial: Trial, executor: pathlib.Path, steps: int) -> Back:
    """Raises AssertionError if a tensor differs in a bit."""
    step = trial.folder / "checkpoints" / f"step-{steps:08}"
    stored = tensors_of(step / "model")
    out, state = in_the_published_code(model, step, trial.folder)
    theirs = {name: state[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for name in stored}
    assert [name for name, (_, _, data) in stored.items() if theirs[name] != data] == []
    again = trial.executed(executor, 1, 0.0, weights=out)
    assert [name for name, tensor in again["parameters"].items() if name in stored and tensor != stored[name]] == []
    trial.code.load_state_dict(state)
    loss = model.loss(trial.code, trial.inputs(0)).item()
    return Back(len(stored), abs(again["steps"][0][0]["loss"] / loss - 1))


@dataclass
class Curves:
    """Losses of a training run: of fsdp-exec, and of the published code with torch.optim.AdamW."""

    ours: list[float]
    theirs: list[float]
    learns: bool  # The data have a meaning.
    back: Back

    @property
    def worst(self) -> float:
        return max(abs(a / b - 1) for a, b in zip(self.ours, self.theirs, strict=True))


def samples_of(model: Published, trial: Trial, folder: pathlib.Path,
               text: pathlib.Path) -> tuple[Tensors, pathlib.Path | None]:
    """The model's samples of a text, one byte a token, and the file of it for fsdp-exec; ({}, None) for models that read no
    text."""
    ids = torch.frombuffer(bytearray(byte & 127 for byte in text.read_bytes()), dtype=torch.uint8).long()
    inputs = trial.inputs(0)
    if list(inputs) == ["input_ids", "labels"]:
        file = folder / "tokens.bin"
        file.write_bytes(ids.to(torch.int16).numpy().tobytes())  # Two bytes an id, as fsdp-exec reads them.
        seq = inputs["labels"].shape[1]
        rows = ids[:len(ids) // seq * seq].view(-1, seq)
        return {"input_ids": rows, "labels": rows}, file
    if not model.samples:
        return {}, None
    from safetensors.torch import save_file

    file = folder / "samples.safetensors"
    samples = model.samples(ids, inputs)
    save_file({name: tensor.contiguous() for name, tensor in samples.items()}, file)
    return samples, file


def train(model: Published, executor: pathlib.Path, planner: pathlib.Path, folder: pathlib.Path, text: pathlib.Path,
          steps: int) -> Curves:
    """`text`: the data of language models, one byte a token; all other models use data of the seed."""
    trial = Trial(model, planner, folder, {"kind": "adamw", "weight_decay": 0.01})
    samples, file = samples_of(model, trial, folder, text)
    ours = trial.executed(executor, steps, LEARNING_RATE, ("--checkpoint-dir", str(folder / "checkpoints"),
                                                           *(("--tokens", str(file)) if file else ())))
    optimizer = torch.optim.AdamW(trial.code.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    # An expert without tokens has no gradient in transformers, and one of zeros under FSDP2, where every shard is reduced:
    # AdamW then still changes it.
    for parameter in trial.code.parameters():
        parameter.grad = torch.zeros_like(parameter)
    theirs = []
    for step in range(steps):
        inputs = trial.inputs(step)
        if samples:
            batch, count = inputs["labels"].shape[0], len(samples["labels"])
            rows = [(step * batch + row) % count for row in range(batch)]
            inputs = {name: tensor[rows] for name, tensor in samples.items()}
        loss = model.loss(trial.code, inputs)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    return Curves([step["loss"] for step in ours["steps"][0]], theirs, bool(samples),
                  there_and_back(model, trial, executor, steps))

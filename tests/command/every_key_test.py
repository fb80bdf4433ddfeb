#!/usr/bin/env python3
"""No key of a plan, a cluster or a model spec is without effect.

usage: every_key_test.py PROJECT_ROOT BINARY

Walks the keys of the JSON schemas. For each of them a file that is known to be good is changed at that key alone, and what
the program then says must be another prediction, another model, or a refusal. What is written for people is listed by
name. A key that the schemas gain is looked at by itself; one that nothing reads makes this test fail.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any

sys.dont_write_bytecode = True
ROOT, PROGRAM = (pathlib.Path(argument).absolute() for argument in sys.argv[1:3])
sys.path.insert(0, str(ROOT / "tests" / "rehearsal"))
from op_cases import op_cases  # noqa: E402

Json = dict[str, Any]
Path = tuple[str, ...]
REFUSED = "refused"
ABSENT = object()

# Read by people, editors and later versions of the program.
FOR_PEOPLE = {"$schema", "format_version", "generator", "description", "source", "notes", "aliases", "provenance",
              "assumptions", "architecture"}


def schema(name: str) -> Json:
    return json.loads((ROOT / "model_specs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))


class Program:
    """fsdp-plan in a folder of its own."""

    def __init__(self, folder: str) -> None:
        self.folder = pathlib.Path(folder)

    def run(self, *words: str) -> str:
        done = subprocess.run([str(PROGRAM), *words], capture_output=True, text=True, cwd=self.folder, timeout=900,
                              env={**os.environ, "FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs")})
        if done.returncode == 2:
            return REFUSED
        if done.returncode not in (0, 1):
            raise AssertionError(f"{words}: exit {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def write(self, name: str, value: Json) -> str:
        (self.folder / name).write_text(json.dumps(value), encoding="utf-8")
        return name

    def prediction(self, plan: Json, spec: Json) -> str:
        """What is predicted of a plan, without the plan itself."""
        self.write("spec.json", spec)
        said = self.run("simulate", self.write("plan.json", plan), "--json")
        if said == REFUSED:
            return said
        report = json.loads(said)
        for echo in ("plan", "runtime", "runtime_version", "workload"):
            report.pop(echo, None)
        return json.dumps(report, sort_keys=True)

    def expanded(self, spec: Json, *words: str) -> str:
        """The model of a spec, without what it says to people."""
        said = self.run("models", self.write("spec.json", spec), "--expanded", *words)
        if said == REFUSED:
            return said
        model = json.loads(said)
        for key in ("source", "notes"):
            del model[key]
        return json.dumps(model, sort_keys=True)


# ---- Files that are good.

def small_lm(**more: Any) -> Json:
    return {
        "format_version": "1.0", "name": "Small", "source": "a test", "dtype": "float32",
        "dimensions": {"batch": 2, "seq": 64},
        "inputs": {"input_ids": {"shape": ["batch", "seq"], "dtype": "int64"},
                   "labels": {"shape": ["batch", "seq"], "dtype": "int64"}},
        "modules": [
            {"name": "model.embed_tokens", "block": "token_embedding", "vocab_size": 2000, "hidden_size": 64},
            {"name": "model.rotary_emb", "block": "rotary_table", "head_dim": 16},
            {"name": "model.layers.{0..3}", "block": "decoder_layer", "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128},
            {"name": "model.norm", "class": "LlamaRMSNorm", "block": "rms_norm"},
            {"name": "lm_head", "block": "lm_head", "vocab_size": 2000},
            {"name": "", "block": "cross_entropy", "shift": True}],
        "classes": {"": "LlamaForCausalLM", "model": "LlamaModel"},
        **more}


def small_decoder(block: str, **options: Any) -> Json:
    spec = small_lm()
    layers = {"name": "model.layers.{0..3}", "block": block, "num_attention_heads": 4, **options}
    return {**spec, "modules": [*spec["modules"][:2], layers, *spec["modules"][3:]]}


LATENT = {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16}
EXPERTS = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2, "stacked": True, "shared_intermediate_size": 64}
LINEAR = {"linear_attention": True, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
NEMOTRON = {"mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "head_dim": 16, "intermediate_size": 128}
# Options that do something beside these alone.
WITH_OTHERS = {
    "decoder_layer/layer_dropout": small_decoder("decoder_layer", num_key_value_heads=2, head_dim=16, intermediate_size=128,
                                                 norms="shared_last"),
    "decoder_layer/complex_rotary": small_decoder("decoder_layer", intermediate_size=128, **LATENT),
    **{f"{block}/temperature_tuning": small_decoder(block, num_key_value_heads=2, head_dim=16, rope=False, **widths)
       for block, widths in (("decoder_layer", {"intermediate_size": 128}), ("moe_layer", EXPERTS), ("llama4_layer", {"intermediate_size": 128}))},
    "llama4_layer/num_experts_per_tok": small_decoder("llama4_layer", num_key_value_heads=2, head_dim=16, intermediate_size=128,
                                                      num_experts=4),
    "moe_layer/complex_rotary": small_decoder("moe_layer", **EXPERTS, **LATENT),
    "decoder_layer/fused_linear_projections": small_decoder("decoder_layer", intermediate_size=128, **LINEAR),
    "moe_layer/fused_linear_projections": small_decoder("moe_layer", **EXPERTS, **LINEAR),
    "llama4_layer/fused_linear_projections": small_decoder("llama4_layer", intermediate_size=128, **LINEAR),
    "nemotron_h_block/mixer": small_decoder("nemotron_h_block", **NEMOTRON),
    "moe_layer/mlp_bias": small_decoder("moe_layer", num_key_value_heads=2, head_dim=16, **EXPERTS),
}


def small_mlp(**of_input: Any) -> Json:
    return {"format_version": "1.0", "name": "Small", "source": "a test", "dtype": "float32", "dimensions": {"batch": 8},
            "inputs": {"x": {"shape": ["batch", 64], **of_input}, "labels": {"shape": ["batch"], "dtype": "int64"}},
            "modules": [{"name": "body", "class": "Body", "inputs": {"x": "x"}, "outputs": {"y": "logits"}, "ops": [
                {"op": "linear", "module": "up", "inputs": ["x"], "out_features": 96},
                {"op": "gelu", "module": "act"}, {"op": "linear", "module": "down", "out_features": 10, "outputs": ["y"]}]},
                {"name": "", "block": "cross_entropy"}]}


def measured(value: str) -> Json:
    return {"value": value, "provenance": "assumed", "source": "a test"}


def cluster(nodes: int = 2) -> Json:
    gpu = json.loads((ROOT / "model_specs" / "clusters" / "gpus" / "h100_80gb_sxm.json").read_text(encoding="utf-8"))
    library = json.loads((ROOT / "model_specs" / "clusters" / "dgx_h100.json").read_text(encoding="utf-8"))
    return {**library, "gpu": gpu, "gpus_per_node": 2, "nodes": nodes}


def small_plan(nodes: int = 2, **more: Any) -> Json:
    layers = {"modules": ["model.layers.{0..3}"], "modules_per_unit": 2, "reshard_after_forward": True}
    return {"format_version": "1.0", "model": {"name": "Small", "file": "spec.json"},
            "mesh": {"replicate": 1, "shard": 2 * nodes}, "units": [layers, {"modules": [""]}],
            "cluster": cluster(nodes), **more}


def merged(base: Json, change: Json) -> Json:
    made = copy.deepcopy(base)
    for key, value in change.items():
        made[key] = merged(made[key], value) if isinstance(value, dict) and isinstance(made.get(key), dict) else value
    return made


def changed(base: Any, path: Path, value: Any) -> Any:
    """A copy with the value at a path; lists on the way are gone through by number."""
    made = copy.deepcopy(base)
    here = made
    for key in path[:-1]:
        here = here[int(key)] if isinstance(here, list) else here.setdefault(key, {})
    last = int(path[-1]) if isinstance(here, list) else path[-1]
    if value is ABSENT:
        here.pop(last, None)
    else:
        here[last] = value
    return made


# ---- Other values of a key.

def values_of(node: Json, root: Json) -> list[Any]:
    """Values that a schema allows, some of them unlike whatever is there."""
    node = resolved(node, root)
    found: list[Any] = []
    for part in ("oneOf", "anyOf", "allOf"):
        for one in node.get(part, []):
            found += values_of(one, root)
    if "const" in node:
        found.append(node["const"])
    found += node.get("enum", [])
    kind = node.get("type")
    if kind == "boolean":
        found += [True, False]
    elif kind == "null":
        found.append(None)
    elif kind == "integer":
        found += [value for value in (0, 1, 2, 3, 5, 8, 1000) if is_allowed(value, node)]
    elif kind == "number":
        found += [value for value in (0, 0.25, 0.5, 2) if is_allowed(value, node)]
    elif kind == "string" and not found:
        found += ["another", "model.layers.1"]
    elif kind == "array":
        found += [[value] for value in values_of(node.get("items", {}), root)[:6]] + [[]]
    return found


def is_allowed(value: float, node: Json) -> bool:
    """A value out of range is refused whether a rule reads it or not, and shows nothing."""
    low, above, high = node.get("minimum"), node.get("exclusiveMinimum"), node.get("maximum")
    return (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high)


def resolved(node: Json, root: Json) -> Json:
    while node.get("$ref", "").startswith("#/"):
        pointer = node["$ref"].removeprefix("#/")
        node = root
        for key in pointer.split("/"):
            node = node[key]
    return node


def leaves(node: Json, root: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    for key, value in node.get("properties", {}).items():
        value = resolved(value, root)
        if len(value.get("allOf", [])) == 1:
            value = {**resolved(value["allOf"][0], root), **value}
        items = resolved(value.get("items", {}), root) if value.get("type") == "array" else {}
        if "properties" in value:
            yield from leaves(value, root, (*path, key))
        elif "properties" in items:
            yield from leaves(items, root, (*path, key, "0"))
        else:
            yield (*path, key), value


# ---- What makes a key matter, and values that no schema knows.

MIXED = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}}
FEW_TOKENS = {"model": {"dimensions": {"batch": 1, "seq": 2}}}
HYBRID = {"mesh": {"replicate": 2, "shard": 2}}
CHECKPOINTED = {"activation_checkpointing": {"modules": [{"module": "model.layers.{0..3}", "mode": "selective"}]}}
IN_CONTEXT: dict[str, Json] = {
    "units/0/modules_per_unit": {}, "mixed_precision/cast_forward_inputs": MIXED,
    "activation_checkpointing/modules/0/module": CHECKPOINTED, "activation_checkpointing/modules/0/mode": CHECKPOINTED,
    "activation_checkpointing/selective_keep": CHECKPOINTED,
    "activation_checkpointing/every_second_linear": CHECKPOINTED, "activation_checkpointing/early_stop": CHECKPOINTED,
    "activation_checkpointing/offload_inputs": CHECKPOINTED,
    "sync_every_micro_batch": {"accumulation": 2},
    "optimizer/weight_decay": {**FEW_TOKENS, "mesh": {"replicate": 4, "shard": 1}, "optimizer": {"kind": "adam", "implementation": "for_loop"}},
    "optimizer/momentum": {"optimizer": {"kind": "sgd"}},
    "runtime/implementations/prefer_cudnn_attention": MIXED,
    "runtime/implementations/loss_after_root": {"units": [{"modules": [""], "reshard_after_forward": True}]},
    "runtime/implementations/float_logits": MIXED,
    "runtime/implementations/upcast_logits": MIXED,
    "runtime/quirks/all_reduce_output_kept": {**HYBRID, "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}, "parameter_dtype": "float32"},
    "runtime/quirks/forward_all_gather_output_kept": {"model": {**FEW_TOKENS["model"], "frozen": ["model.embed_tokens", "model.layers"]}},
    "runtime/quirks/clip_reduces_each_norm": {"optimizer": {"clip_grad_norm": 1.0}},
    "runtime/implementations/norm_in_float64": {"optimizer": {"clip_grad_norm": 1.0}},
    "runtime/implementations/lora_in_one_op": {"model": {"lora": {"r": 4}}},
    "runtime/quirks/skip_collectives_of_one": {"mesh": {"replicate": 4, "shard": 1}},
}
OWN_VALUES: dict[str, list[Any]] = {
    "model/file": ["other.json"], "model/fingerprint": ["0" * 16], "model/recipe": ["tuned"],
    "model/dimensions": [{"batch": 3}], "model/also": [["gpt2,dtype=bf16"]], "model/trainable": [["lm_head"]], "model/frozen": [["model.embed_tokens"]],
    "units/0/modules": [["model.layers.0"]], "activation_checkpointing/selective_keep": [["attention"], []],
    "runtime/name": ["megatron"], "runtime/version": ["2.4.0", "abc"],
    "runtime/allocator_settings": ["expandable_segments:True"], "runtime/quirks/cublaslt_workspace_bytes": [1 << 25],
}
ALWAYS_REFUSED = {"runtime/name", "runtime/version"}  # There is one that is known.
SPECS = {"runtime/implementations/cudnn_allow_tf32":
             json.loads((ROOT / "model_specs" / "resnet18.json").read_text(encoding="utf-8")),
         "mixed_precision/cast_forward_inputs": small_mlp(dtype="float32"), "runtime/quirks/cublaslt_workspace_bytes": small_mlp(),
         "runtime/implementations/use_cache": json.loads((ROOT / "model_specs" / "qwen3_tts_0_6b_custom_voice.json").read_text(encoding="utf-8"))}


def scaled(text: Any) -> Any:
    """A third of a quantity such as "450GB/s"."""
    if not isinstance(text, str):
        return text / 3 if isinstance(text, float) else max(1, text // 3)
    digits = text[:len(text) - len(text.lstrip("0123456789."))]
    return f"{float(digits) / 3:.6g}{text[len(digits):]}" if digits else text + " x"


class EveryKey(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = Program(folder.name)

    def assert_matters(self, name: str, base: str, others: Iterator[str]) -> None:
        self.assertNotEqual(base, REFUSED, f"{name}: the file to start from is refused")
        self.assertTrue(any(other != base for other in others), f"{name} changes nothing and is not refused")

    def test_of_a_plan_has_an_effect(self) -> None:
        whole = schema("plan")
        spec = small_lm(recipes={"default": {}, "tuned": {"frozen": ["lm_head"]}})
        self.program.write("other.json", small_lm(name="Other", dimensions={"batch": 5, "seq": 64}))
        for path, node in leaves(whole, whole):
            key = "/".join(path)
            if path[-1] in FOR_PEOPLE or path[0] == "cluster" or key == "model/name":
                continue
            with self.subTest(key):
                model = SPECS.get(key, spec)
                plan = merged(small_plan(), IN_CONTEXT.get(key, {}))
                if model is not spec:
                    plan["units"] = [{"modules": [""]}]
                base = self.program.prediction(plan, model)
                values = OWN_VALUES.get(key) or values_of(node, whole)
                if key in ALWAYS_REFUSED:
                    for value in values:
                        self.assertEqual(self.program.prediction(changed(plan, path, value), model), REFUSED, value)
                    continue
                self.assert_matters(key, base, (self.program.prediction(changed(plan, path, v), model) for v in values))

    def test_of_a_cluster_has_an_effect(self) -> None:
        whole = schema("cluster")
        for name, prefix in (("cluster", ()), ("gpu", ("gpu",))):
            for path, node in leaves(whole["definitions"][name], whole):
                if path[0] in FOR_PEOPLE or path[-1] in FOR_PEOPLE or path in (("kind",), ("name",), ("gpu",)):
                    continue
                key = "/".join((*prefix, *path))
                with self.subTest(key):
                    self.assert_of_cluster(key, (*prefix, *path), node, whole)

    def assert_of_cluster(self, key: str, path: Path, node: Json, whole: Json) -> None:
        plan = small_plan(**MIXED)
        if key.split("/")[1:2] in (["achievable_fp32"], ["pace_tf32"], ["time_spread"]):  # For kernels in 32 bits.
            plan = small_plan(runtime={"implementations": {"matmul_allow_tf32": "tf32" in key}})
        if "host" in key:
            plan["cpu_offload"] = True
        if path[0] == "gpu":  # Its links are those of clusters that name none.
            for link in ("intra_node", "host_link", "network"):
                plan["cluster"].pop(link, None)
        if "sms" in key:  # How wide the sums of kernels are that have scratch.
            plan["model"]["dimensions"] = {"batch": 4, "seq": 1024}
        if "sharp" in key:
            plan = merged(plan, {"cluster": {"gpus_per_node": 8, "nodes": 4}, "mesh": {"shard": 32}})
        base = self.program.prediction(plan, small_lm())
        here: Any = plan["cluster"]
        for part in path:
            here = here.get(part, {}) if isinstance(here, dict) else {}
        values: list[Any] = values_of(node, whole)
        if isinstance(here, dict) and "value" in here:
            values = [{**here, "value": scaled(here["value"])}]
        elif not values or isinstance(here, str):
            values += [scaled(here)] if isinstance(here, str) else []
        self.assert_matters(key, base, (self.program.prediction(changed(plan, ("cluster", *path), v), small_lm()) for v in values))

    # ---- Model specs: another model, or another prediction of it.

    def said_of(self, spec: Json, plan: Json, *words: str) -> str:
        model = self.program.expanded(spec, *words)
        return model if model == REFUSED else model + self.program.prediction(plan, spec)

    def test_of_a_spec_has_an_effect(self) -> None:
        """Keys beside those of blocks and ops. A key that the schema gains must be in the table."""
        whole = schema("model")
        definitions = whole["definitions"]
        entry = definitions["plain_ops"]["properties"]
        keys = {(key,) for key in whole["properties"]} - {("inputs",), ("classes",), ("modules",), ("recipes",), ("initial_values",)}
        keys |= {("inputs", key) for key in definitions["input"]["properties"]}
        keys |= {("classes", key) for key in definitions["class"]["properties"]}
        keys |= {("modules", key) for key in [*entry, "block", "per_layer"]}
        keys |= {("recipes", *path) for path, _ in leaves(definitions["recipe"], whole)}
        keys |= {("initial_values", *path) for path, _ in leaves(definitions["initial_values"], whole)}
        self.assertEqual({path for path in keys if path[-1] not in FOR_PEOPLE}, set(IN_SPEC), "the table names every key")
        for path, (spec, changes) in IN_SPEC.items():
            with self.subTest("/".join(path)):
                plan = small_plan(**MIXED)
                if not any(module["name"].startswith("model.layers") for module in spec["modules"]):
                    plan["units"] = [{"modules": [""], "reshard_after_forward": True}]
                if path[0] == "recipes":
                    self.assert_recipe_matters("/".join(path), spec, changes)
                    continue
                others = (self.said_of(changed(spec, at, value), plan) for at, value in changes)
                self.assert_matters("/".join(path), self.said_of(spec, plan), others)

    def assert_recipe_matters(self, name: str, spec: Json, changes: list[tuple[Path, Any]]) -> None:
        """A recipe is where a search begins."""
        def plan_of(some: Json) -> str:
            words = ("--gpus", "2", "--gpu", "H100 SXM", "--wrap", "blocks", "--activation-checkpointing", "none", "--reshard", "true",
                     "--offload", "no", "--shard", "2", "--json")
            said = self.program.run(self.program.write("spec.json", some), *words)
            if said == REFUSED:
                return said
            report = json.loads(said)
            return json.dumps([report["plan"], report["memory"]], sort_keys=True)

        self.assert_matters(name, plan_of(spec), (plan_of(changed(spec, at, value)) for at, value in changes))

    def test_of_blocks_has_an_effect(self) -> None:
        """Each option of each block, in some shipped model or some case of the op rules that has the block."""
        whole = schema("model")
        specs = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((ROOT / "model_specs").glob("*.json"))]
        specs += [case.spec() for case in op_cases()]
        specs.append(changed(small_lm(), ("modules", "1", "layer_type"), "full_attention"))
        for name, node in whole["definitions"].items():
            if not name.startswith("block_"):
                continue
            block = name.removeprefix("block_")
            places = [(spec, i) for spec in specs for i, module in enumerate(spec["modules"]) if module.get("block") == block]
            self.assertTrue(places or block in WITHOUT_OPTIONS, f"no spec has the block {block}")
            for option, rule in node["properties"].items() if places else ():
                if option in {key[1] for key in IN_SPEC if key[0] == "modules"}:
                    continue
                with self.subTest(f"{block}/{option}"):
                    self.assert_option_matters(f"{block}/{option}", places, ("modules",), option, rule, whole)

    def test_of_ops_has_an_effect(self) -> None:
        """Each attribute of each plain op, in some case of the op rules that has the op."""
        whole = schema("model")
        specs = [case.spec() for case in op_cases() if case.modules is None]
        for name, node in whole["definitions"].items():
            if not name.startswith("op_") or name.startswith("op_entry"):
                continue
            kind = name.removeprefix("op_")
            places = [(spec, i) for spec in specs for i, op in enumerate(spec["modules"][0]["ops"]) if op["op"] == kind]
            for attribute, rule in node["properties"].items():
                if attribute in ("op", "module", "class", "inputs", "outputs", "variables"):
                    continue
                with self.subTest(f"{kind}/{attribute}"):
                    places = places or [(NO_SPEC_HAS[kind], 0)]
                    self.assert_option_matters(f"{kind}/{attribute}", places, ("modules", "0", "ops"), attribute, rule, whole)

    def test_of_variables_has_an_effect(self) -> None:
        """That name what an op gives: the same of every op."""
        spec = small_mlp()
        named = changed(spec, ("modules", "0", "ops", "0", "variables"), ["hidden"])
        self.assertNotIn(self.program.expanded(named), (REFUSED, self.program.expanded(spec)))

    def assert_option_matters(self, name: str, places: list[tuple[Json, int]], above: Path, option: str, rule: Json,
                              whole: Json) -> None:
        if name in WITH_OTHERS:
            places = [(WITH_OTHERS[name], 2)]
        places = [WITH_OTHERS_AT[name]] if name in WITH_OTHERS_AT else places
        for spec, i in places[:6]:
            base = self.program.expanded(spec)
            self.assertNotEqual(base, REFUSED, f"{name}: {spec['name']} is refused")
            values = values_of(rule, whole)
            # Values of the right type: what is refused has been read.
            if any(self.program.expanded(changed(spec, (*above, str(i), option), value)) != base for value in values):
                return
        self.fail(f"{name} changes no model")


# As WITH_OTHERS, and the place of the module.
WITH_OTHERS_AT = {"rotary_table/chunked_mask": (changed(small_lm(), ("modules", "1", "sliding_window"), 16), 1)}
WITHOUT_OPTIONS = {"vit_pooler"}

# Keys that neither a shipped model nor a case of the op rules has.
NO_SPEC_HAS: dict[str, Json] = {
    "rotary_table": changed(small_mlp(), ("modules", "0", "ops"), [
        {"op": "rotary_table", "inputs": ["labels"], "head_dim": 8, "outputs": ["cos", "sin"]},
        {"op": "linear", "module": "up", "inputs": ["x"], "out_features": 10, "outputs": ["y"]}]),
}

_TUNED = {"recipes": {"default": {"optimizer": {"kind": "sgd", "momentum": 0.9}, **MIXED}}}
_RECIPE = ("recipes", "default")
_AUTOCAST = {"param_dtype": "bfloat16", "autocast": "bfloat16"}
_BEGINS: Path = ("initial_values",)
_EXCEPTION: Path = (*_BEGINS, "exceptions", "0")
_BEGUN: Json = {"initial_values": {"source": "a test", "std": 0.25, "exceptions": [{"pattern": "lm_head", "std": 0.75}]}}

# A good spec, and changes of which at least one shows. Keys for people are not here.
IN_SPEC: dict[Path, tuple[Json, list[tuple[Path, Any]]]] = {
    ("name",): (small_lm(), [(("name",), "Other")]),
    ("dtype",): (small_lm(), [(("dtype",), "bfloat16")]),
    ("dimensions",): (small_lm(), [(("dimensions", "seq"), 32)]),
    ("registration",): (small_lm(), [(("registration",), ["lm_head", "model"])]),
    ("tied",): (small_lm(), [(("tied",), {"lm_head.weight": "model.embed_tokens.weight"})]),
    ("loss",): (small_lm(), [(("loss",), "logits")]),
    ("tokens_per_step",): (small_lm(), [(("tokens_per_step",), "seq")]),
    ("trainable",): (small_lm(), [(("trainable",), ["lm_head"])]),
    ("frozen",): (small_lm(), [(("frozen",), ["lm_head"])]),
    ("inputs", "shape"): (small_mlp(), [(("inputs", "x", "shape"), ["batch", 32])]),
    ("inputs", "dtype"): (small_mlp(), [(("inputs", "x", "dtype"), "float32")]),
    ("inputs", "root_argument"): (small_mlp(dtype="float32"), [(("inputs", "x", "root_argument"), False)]),
    ("classes", "class"): (small_lm(), [(("classes", "model"), {"class": "Other"})]),
    ("classes", "called"): (small_lm(classes={"model": {"class": "M", "called": False}}), [(("classes", "model", "called"), True)]),
    ("modules", "name"): (small_lm(), [(("modules", "4", "name"), "head")]),
    ("modules", "class"): (small_lm(), [(("modules", "3", "class"), "Other")]),
    ("modules", "inputs"): (small_mlp(), [(("modules", "0", "inputs"), {"x": "y"})]),
    ("modules", "outputs"): (small_mlp(), [(("modules", "0", "outputs"), {"y": "z"})]),
    ("modules", "recipes"): (small_lm(recipes={"default": {}, "other": {}}), [(("modules", "3", "recipes"), ["other"])]),
    ("modules", "called"): (small_lm(), [(("modules", "3", "called"), False)]),
    ("modules", "keep_outputs"): (small_lm(), [(("modules", "2", "keep_outputs"), True)]),
    ("modules", "after_root"): (small_lm(), [(("modules", "5", "after_root"), True)]),
    ("modules", "ops"): (small_mlp(), [(("modules", "0", "ops", "1", "op"), "relu")]),
    ("modules", "block"): (small_lm(), [(("modules", "3", "block"), "layer_norm")]),
    ("modules", "per_layer"): (small_lm(), [(("modules", "2", "per_layer"), {"qk_norm": [True, False]})]),
    ("initial_values", "distribution"): (small_lm(**_BEGUN), [((*_BEGINS, "distribution"), "normal")]),
    ("initial_values", "std"): (small_lm(**_BEGUN), [((*_BEGINS, "std"), 0.5)]),
    ("initial_values", "fan"): (small_lm(**_BEGUN), [((*_BEGINS, "fan"), "in")]),
    ("initial_values", "value"): (small_lm(initial_values={"source": "a test", "distribution": "constant"}),
                                  [((*_BEGINS, "value"), 3)]),
    ("initial_values", "exceptions", "0", "pattern"): (small_lm(**_BEGUN), [((*_EXCEPTION, "pattern"), "model.norm")]),
    ("initial_values", "exceptions", "0", "distribution"): (small_lm(**_BEGUN), [((*_EXCEPTION, "distribution"), "normal")]),
    ("initial_values", "exceptions", "0", "std"): (small_lm(**_BEGUN), [((*_EXCEPTION, "std"), 0.5)]),
    ("initial_values", "exceptions", "0", "fan"): (small_lm(**_BEGUN), [((*_EXCEPTION, "fan"), "out")]),
    ("initial_values", "exceptions", "0", "value"): (
        small_lm(initial_values={"source": "a test", "exceptions": [{"pattern": "lm_head", "distribution": "constant"}]}),
        [((*_EXCEPTION, "value"), 3)]),
    ("recipes", "parameter_dtype"): (small_lm(**_TUNED), [((*_RECIPE, "parameter_dtype"), "bfloat16")]),
    ("recipes", "mixed_precision", "param_dtype"): (small_lm(**_TUNED), [((*_RECIPE, "mixed_precision", "param_dtype"), "float16")]),
    ("recipes", "mixed_precision", "reduce_dtype"): (small_lm(**_TUNED), [((*_RECIPE, "mixed_precision", "reduce_dtype"), "bfloat16")]),
    ("recipes", "mixed_precision", "output_dtype"): (small_lm(**_TUNED), [((*_RECIPE, "mixed_precision", "output_dtype"), "bfloat16")]),
    ("recipes", "mixed_precision", "cast_forward_inputs"):
        (small_mlp(dtype="float32") | _TUNED, [((*_RECIPE, "mixed_precision", "cast_forward_inputs"), False)]),
    ("recipes", "mixed_precision", "autocast"): (small_lm(**_TUNED), [((*_RECIPE, "mixed_precision"), _AUTOCAST)]),
    ("recipes", "mixed_precision", "float_outputs"): (
        small_lm(recipes={"default": {"mixed_precision": _AUTOCAST}}),
        [((*_RECIPE, "mixed_precision"), {**_AUTOCAST, "float_outputs": True})]),
    ("recipes", "optimizer", "kind"): (small_lm(), [(("recipes",), {"default": {"optimizer": {"kind": "sgd"}}})]),
    ("recipes", "optimizer", "implementation"): (small_lm(**_TUNED), [((*_RECIPE, "optimizer", "implementation"), "for_loop")]),
    ("recipes", "optimizer", "states"): (small_lm(**_TUNED), [((*_RECIPE, "optimizer", "states"), "8bit")]),
    ("recipes", "optimizer", "weight_decay"): (small_lm(**_TUNED), [((*_RECIPE, "optimizer", "weight_decay"), 0)]),
    ("recipes", "optimizer", "momentum"): (small_lm(**_TUNED), [((*_RECIPE, "optimizer", "momentum"), 0)]),
    ("recipes", "optimizer", "clip_grad_norm"): (small_lm(**_TUNED), [((*_RECIPE, "optimizer", "clip_grad_norm"), 1.0)]),
    ("recipes", "accumulation"): (small_lm(**_TUNED), [((*_RECIPE, "accumulation"), 2)]),
    ("recipes", "dimensions"): (small_lm(**_TUNED), [((*_RECIPE, "dimensions"), {"seq": 32})]),
    ("recipes", "trainable"): (small_lm(**_TUNED), [((*_RECIPE, "trainable"), ["lm_head"])]),
    ("recipes", "frozen"): (small_lm(**_TUNED), [((*_RECIPE, "frozen"), ["lm_head"])]),
}


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)

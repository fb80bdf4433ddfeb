"""Cases of op_rules_test.py: for each kind of op some shapes, and what of a runtime it depends on.

A case is a model of a few ops. What comes in has been through a linear layer, so that its gradient is wanted; what goes
out is scaled and averaged. Sizes are such that the ways of PyTorch's kernels that differ in memory are taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

Values = dict[str, Any]
Shape = list[int]


@dataclass
class OpCase:
    """Ops that read "x" and the other inputs; the last one gives `shape`."""

    kind: str
    name: str
    ops: list[Values]
    x: Shape
    shape: Shape | None  # None: the ops end with the loss.
    inputs: dict[str, Values] = field(default_factory=dict)  # Beside x, as a model spec has them.
    through: list[str] = field(default_factory=lambda: ["x"])  # Float inputs that go through a linear layer first.
    uses: tuple[str, ...] = ()  # Choices of the runtime that it depends on: keys of IMPLEMENTATIONS.
    plan: Values = field(default_factory=dict)
    optimizer: bool = False  # Its step is compared too.
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    modules: list[Values] | None = None  # Blocks of models in the place of ops; they read `inputs`.

    def spec(self) -> Values:
        if self.modules is not None:
            return {**_HEAD, "name": self.name, "inputs": self.inputs, "modules": self.modules}
        inputs = {"x": {"shape": self.x}, **self.inputs}
        ops = [{"op": "linear", "module": f"before_{name}", "inputs": [name], "outputs": [f"{name}_in"], "bias": False,
                "out_features": inputs[name]["shape"][-1]} for name in self.through]
        renamed = {name: f"{name}_in" for name in self.through}
        for op in self.ops:
            ops.append({**op, "inputs": [renamed.get(name, name) for name in op["inputs"]]} if "inputs" in op else op)
        if self.shape is not None:
            ops += [{"op": "scale", "scale": 2.0}, {"op": "reshape", "shape": [math.prod(self.shape)]},
                    {"op": "mean", "dim": 0, "outputs": ["loss"]}]
        return {**_HEAD, "name": self.name, "inputs": inputs,
                "modules": [{"name": "", "class": "Case", "ops": ops, "outputs": ["loss"]}]}


_HEAD: Values = {"format_version": "1.0", "source": "a test", "dtype": "float32", "dimensions": {"batch": 1}}


# What a runtime can choose, by the part of it that asks.
IMPLEMENTATIONS: dict[str, list[Values]] = {
    "rms_norm": [{"rms_norm": "written_out"}, {"rms_norm": "composite"}, {"rms_norm": "fused"}],
    "rotary": [{"rotary": "halves"}, {"rotary": "halves_seq_first"}, {"rotary": "complex"}],
    "use_cache": [{"use_cache": True}, {"use_cache": False}],
    "attention": [{"attention": name} for name in ("automatic", "flash", "memory_efficient", "math", "cudnn", "eager")],
    "repeat_kv": [{"repeat_kv": False}, {"repeat_kv": True}],
    "loss": [{"loss": "pytorch"}, {"loss": "flash_attn"}],
    "upcast_logits": [{"upcast_logits": True}, {"upcast_logits": False}],
    "keep_logits": [{"keep_logits": False}, {"keep_logits": True}],
}

HIDDEN: Shape = [2, 512, 256]


def _one(kind: str, name: str = "", x: Shape | None = None, shape: Shape | None = None, **options: Any) -> OpCase:
    """One op that reads x."""
    x = x or HIDDEN
    uses = options.pop("uses", ())
    return OpCase(kind, f"{kind}{'_' + name if name else ''}",
                  [{"op": kind, "module": "tested" if kind in _LAYERS else "", "inputs": ["x"], **options}], x,
                  shape or x, uses=uses)


_LAYERS = {"linear", "embedding", "conv1d", "conv2d", "rms_norm", "layer_norm", "group_norm", "batch_norm"}


def _two(kind: str, name: str, x: Shape, y: Shape, shape: Shape, **options: Any) -> OpCase:
    """One op that reads x and y, both with a gradient."""
    return OpCase(kind, f"{kind}_{name}", [{"op": kind, "inputs": ["x", "y"], **options}], x, shape,
                  {"y": {"shape": y}}, ["x", "y"])


def _dense() -> list[OpCase]:
    def embedding(name: str, rows: Shape, entries: int, width: int) -> OpCase:
        return OpCase("embedding", f"embedding_{name}",
                      [{"op": "embedding", "module": "tested", "inputs": ["ids"], "num_embeddings": entries,
                        "embedding_dim": width}, {"op": "add", "inputs": ["x", "tested"]}],
                      [*rows, width], [*rows, width], {"ids": {"shape": rows, "dtype": "int64"}})

    def with_names(case: OpCase) -> OpCase:
        case.ops[0]["outputs"] = ["tested"]
        return case

    return [
        _one("linear", "bias", shape=[2, 512, 384], out_features=384),
        _one("linear", "plain", shape=[2, 512, 384], out_features=384, bias=False),
        _one("linear", "rows", [3, 77], [3, 55], out_features=55),
        _one("linear", "many_rows", [16, 1024, 64], [16, 1024, 96], out_features=96),
        _one("linear", "conv1d_of_gpt2", shape=[2, 512, 384], out_features=384, transposed_weight=True),
        with_names(embedding("small", [2, 512], 1000, 64)), with_names(embedding("sorted", [4, 1024], 1000, 64)),
        with_names(embedding("sorted_wide", [8, 2048], 32000, 128)),
        _one("conv1d", "same", [4, 32, 400], [4, 48, 400], out_channels=48, kernel=3, padding=1),
        _one("conv1d", "strided", [4, 32, 400], [4, 48, 200], out_channels=48, kernel=3, padding=1, stride=2,
             bias=False),
        _one("conv1d", "grouped", [4, 32, 400], [4, 32, 400], out_channels=32, kernel=3, padding=2, dilation=2,
             groups=4),
        _one("conv2d", "patches", [4, 3, 64, 64], [4, 96, 4, 4], out_channels=96, kernel=16, stride=16),
        _one("conv2d", "plain", [4, 16, 32, 32], [4, 32, 32, 32], out_channels=32, kernel=3, padding=1, bias=False),
        OpCase("parameter", "parameter_add",
               [{"op": "parameter", "parameter": "table", "shape": [1, 512, 256], "outputs": ["table"]},
                {"op": "add", "inputs": ["x", "table"]}], HIDDEN, HIDDEN),
        OpCase("parameter", "parameter_token",
               [{"op": "parameter", "parameter": "token", "shape": [1, 1, 256], "outputs": ["token"]},
                {"op": "expand", "inputs": ["token"], "shape": [2, 1, 256], "outputs": ["tokens"]},
                {"op": "cat", "inputs": ["tokens", "x"], "dim": 1}], HIDDEN, [2, 513, 256]),
        OpCase("parameter", "parameter_scale",
               [{"op": "parameter", "parameter": "scale", "shape": [256], "outputs": ["scale"]},
                {"op": "mul", "inputs": ["x", "scale"]}], HIDDEN, HIDDEN),
    ]


def _norms() -> list[OpCase]:
    def in_fp32(case: OpCase) -> OpCase:
        """PyTorch's own kernels want the running statistics in the dtype of the input, and those are kept in fp32."""
        case.dtypes = ("float32",)
        return case

    return [
        _one("rms_norm", uses=("rms_norm",)), _one("rms_norm", "gemma", unit_offset=True, uses=("rms_norm",)),
        _one("rms_norm", "heads", [2, 1024, 8, 64], uses=("rms_norm",)),
        _one("rms_norm", "many_rows", [4, 4096, 8, 128], uses=("rms_norm",)),
        _one("layer_norm", "bias"), _one("layer_norm", "plain", bias=False),
        _one("layer_norm", "unit_offset", unit_offset=True), _one("layer_norm", "in_fp32", wide_weight=True),
        _one("layer_norm", "many_rows", [70000, 64]), _one("layer_norm", "wide", [2, 300, 1000]),
        _one("group_norm", "images", [4, 32, 16, 16], groups=8), _one("group_norm", "rows", [2, 64, 300], groups=32),
        in_fp32(_one("batch_norm", "images", [4, 32, 16, 16])), in_fp32(_one("batch_norm", "rows", [4, 64, 300])),
    ]


def _attention(name: str, heads: int = 8, kv_heads: int = 8, dim: int = 64, queries: int = 256, keys: int = 0,
               batch: int = 2, mask: Shape | None = None, uses: tuple[str, ...] = ("attention",),
               **options: Any) -> OpCase:
    keys = keys or queries
    q, kv = [batch, queries, heads, dim], [batch, keys, kv_heads, dim]
    inputs: dict[str, Values] = {"k": {"shape": kv}, "v": {"shape": kv}}
    if mask:
        inputs["mask"] = {"shape": mask}
    return OpCase("attention", f"attention_{name}",
                  [{"op": "attention", "inputs": ["x", "k", "v", *(["mask"] if mask else [])], **options}], q,
                  [batch, queries, heads * dim], inputs, ["x", "k", "v"], uses)


def _attentions() -> list[OpCase]:
    grouped = ("attention", "repeat_kv")
    return [
        _attention("causal", causal=True), _attention("encoder"), _attention("odd", dim=80, queries=197),
        _attention("grouped", kv_heads=2, causal=True, uses=grouped, dim=128),
        _attention("one_kv_head", kv_heads=1, causal=True, uses=grouped),
        _attention("narrow", dim=12, causal=True), _attention("narrow_grouped", dim=12, kv_heads=2, uses=grouped),
        _attention("narrow_one_kv_head", dim=20, kv_heads=1, batch=1, uses=grouped),
        _attention("cross", queries=128, keys=384),
        _attention("masked", mask=[2, 1, 256, 256]), _attention("masked_grouped", mask=[1, 1, 256, 256], kv_heads=2),
        _attention("masked_odd", mask=[1, 8, 197, 197], queries=197),
        _attention("dropout", probability=0.1), _attention("dropout_causal", probability=0.1, causal=True),
        _attention("softcap", softcap=50.0, causal=True, uses=()),
        _attention("wide", dim=256, heads=4, kv_heads=4, causal=True),
        _attention("one_row", batch=1, heads=2, kv_heads=2, queries=1024, causal=True),
        _attention("long", batch=1, heads=4, kv_heads=4, queries=2048, causal=True),
        _attention("window", causal=True, window=64, uses=()),
    ]


def _elementwise() -> list[OpCase]:
    def after_silu(kind: str, name: str, shape: Shape, **options: Any) -> OpCase:
        ops: list[Values] = [{"op": "silu", "inputs": ["x"]}, {"op": kind, **options}]
        return OpCase(kind, f"{kind}_{name}", ops, HIDDEN, shape)

    square, column, row = HIDDEN, [2, 512, 1], [256]
    plain = ["silu", "relu", "sigmoid", "tanh", "contiguous", "detach"]
    cases = [_one(kind) for kind in plain if kind != "detach"]
    return cases + [
        _one("gelu"), _one("gelu", "tanh", approximate=True), _one("scale", scale=0.5), _one("softcap", softcap=30.0),
        _one("dropout", probability=0.1), _one("dropout", "none", probability=0.0),
        _one("cast", "wide", dtype="float32"),
        _one("cast", "half", dtype="float16"), _one("cast", "short", dtype="bfloat16"),
        _one("softmax", dim=-1), _one("softmax", "middle", dim=1),
        _two("mul", "equal", square, square, square), _two("mul", "column", square, column, square),
        _two("mul", "row", square, row, square),
        OpCase("mul", "mul_itself", [{"op": "mul", "inputs": ["x", "x"]}], square, square),
        _two("add", "equal", square, square, square), _two("add", "column", square, column, square),
        _two("add", "row", square, row, square), _two("add", "flatter", [1, 512, 256], [512, 256], [1, 512, 256]),
        OpCase("add", "add_itself", [{"op": "add", "inputs": ["x", "x"]}], square, square),
        _two("sub", "equal", square, square, square), _two("sub", "column", square, column, square),
        OpCase("detach", "detach", [{"op": "detach", "inputs": ["x"], "outputs": ["cut"]},
                                    {"op": "mul", "inputs": ["x", "cut"]}], square, square),
        _one("mean", "last", shape=[2, 512], dim=-1), _one("mean", "kept", shape=column, dim=-1, keep_dim=True),
        _one("mean", "first", shape=[512, 256], dim=0), after_silu("sum", "last", [2, 512], dim=-1),
        after_silu("sum", "middle", [2, 256], dim=1), after_silu("sum", "kept", [2, 1, 256], dim=1, keep_dim=True),
        OpCase("std", "std", [{"op": "mean", "inputs": ["x"], "dim": -1, "keep_dim": True, "outputs": ["mean"]},
                              {"op": "std", "inputs": ["x", "mean"], "dim": -1}], square, [2, 512]),
        OpCase("std", "std_weighted",
               [{"op": "mean", "inputs": ["x"], "dim": -1, "keep_dim": True, "outputs": ["mean"]},
                {"op": "std", "inputs": ["x", "mean", "y"], "dim": -1}], square, [2, 512], {"y": {"shape": square}},
               ["x", "y"]),
        _one("max_pool2d", x=[4, 16, 32, 32], shape=[4, 16, 16, 16], kernel=3, stride=2, padding=1),
        _one("adaptive_avg_pool2d", x=[4, 16, 32, 32], shape=[4, 16, 1, 1], length=1),
        _one("adaptive_avg_pool2d", "grid", x=[4, 16, 32, 32], shape=[4, 16, 4, 4], length=4),
    ]


def _shapes() -> list[OpCase]:
    def then_silu(kind: str, name: str, shape: Shape, x: Shape | None = None, **options: Any) -> OpCase:
        case = _one(kind, name, x, shape, **options)
        case.ops.append({"op": "silu"})
        return case

    ids: dict[str, Values] = {"ids": {"shape": [300], "dtype": "int64"}}
    return [
        OpCase("reshape", "reshape", [{"op": "reshape", "inputs": ["x"], "shape": [1024, 256]}, {"op": "silu"}],
               HIDDEN, [1024, 256]),
        OpCase("transpose", "transpose",
               [{"op": "transpose", "inputs": ["x"], "dim": 1, "other_dim": 2}, {"op": "silu"}, {"op": "contiguous"}],
               HIDDEN, [2, 256, 512]),
        OpCase("contiguous", "contiguous_transposed",
               [{"op": "transpose", "inputs": ["x"], "dim": 1, "other_dim": 2}, {"op": "contiguous"}, {"op": "silu"}],
               HIDDEN, [2, 256, 512]),
        then_silu("slice", "first", [2, 100, 256], dim=1, length=100),
        then_silu("slice", "last", [2, 512, 64], dim=2, start=192, length=64),
        OpCase("slice", "slice_twice",
               [{"op": "slice", "inputs": ["x"], "dim": 2, "length": 128, "outputs": ["a"]},
                {"op": "slice", "inputs": ["x"], "dim": 2, "start": 128, "length": 128, "outputs": ["b"]},
                {"op": "mul", "inputs": ["a", "b"]}], HIDDEN, [2, 512, 128]),
        then_silu("select", "", [2, 256], dim=1, start=3),
        OpCase("expand", "expand",
               [{"op": "expand", "inputs": ["x"], "shape": [8, 512, 256]}, {"op": "silu"}], [1, 512, 256],
               [8, 512, 256]),
        OpCase("split", "split",
               [{"op": "split", "inputs": ["x"], "dim": -1, "parts": 2, "outputs": ["a", "b"]},
                {"op": "mul", "inputs": ["a", "b"]}], HIDDEN, [2, 512, 128]),
        OpCase("split", "split_three",
               [{"op": "split", "inputs": ["x"], "dim": -1, "parts": 4, "outputs": ["a", "b", "c", "d"]},
                {"op": "mul", "inputs": ["a", "b"], "outputs": ["ab"]}, {"op": "add", "inputs": ["ab", "c"]}], HIDDEN,
               [2, 512, 64]),
        _two("cat", "last", HIDDEN, [2, 512, 64], [2, 512, 320], dim=-1),
        _two("cat", "middle", HIDDEN, [2, 3, 256], [2, 515, 256], dim=1),
        _two("stack", "new", HIDDEN, HIDDEN, [2, 2, 512, 256], dim=0),
        OpCase("set_slice", "set_slice",
               [{"op": "scale", "inputs": ["x"], "scale": 2.0, "outputs": ["doubled"]},
                {"op": "set_slice", "inputs": ["doubled", "y"], "dim": 1, "start": 6}], HIDDEN, HIDDEN,
               {"y": {"shape": [2, 1, 256]}}),
        OpCase("kv_cache", "kv_cache",
               [{"op": "reshape", "inputs": ["x"], "shape": [2, 512, 4, 64], "outputs": ["heads"]},
                {"op": "scale", "inputs": ["heads"], "scale": 2.0, "outputs": ["k"]},
                {"op": "scale", "inputs": ["heads"], "scale": 3.0, "outputs": ["v"]},
                {"op": "kv_cache", "inputs": ["k", "v"], "outputs": ["keys", "values"]},
                {"op": "attention", "inputs": ["heads", "keys", "values"], "causal": True}], HIDDEN, HIDDEN,
               uses=("use_cache",)),
        OpCase("index", "index", [{"op": "index", "inputs": ["x", "ids"], "dim": 1}, {"op": "silu"}], HIDDEN,
               [2, 300, 256], ids),
        OpCase("index", "index_rows", [{"op": "index", "inputs": ["x", "ids"], "dim": 0}, {"op": "silu"}], [1024, 256],
               [300, 256], ids),
        then_silu("pad", "", [2, 600, 256], dim=1, length=600),
        OpCase("constant", "constant",
               [{"op": "constant", "inputs": [], "shape": [512, 256], "outputs": ["made"]},
                {"op": "add", "inputs": ["x", "made"]}], HIDDEN, HIDDEN),
    ]


def _ends() -> list[OpCase]:
    def loss(name: str, logits: Shape, labels: Shape, **options: Any) -> OpCase:
        return OpCase("cross_entropy", f"cross_entropy_{name}",
                      [{"op": "cross_entropy", "inputs": ["x", "labels"], "outputs": ["loss"], **options}], logits,
                      None, {"labels": {"shape": labels, "dtype": "int64"}},
                      uses=("loss", "upcast_logits", "keep_logits"))

    return [
        loss("tokens", [2, 300, 1000], [2, 300], shift=True), loss("one_row", [1, 300, 1000], [1, 300], shift=True),
        loss("classes", [64, 100], [64]),
        OpCase("mse_loss", "mse_loss", [{"op": "mse_loss", "inputs": ["x", "y"], "outputs": ["loss"]}], HIDDEN, None,
               {"y": {"shape": HIDDEN}}),
        OpCase("mse_loss", "mse_loss_both", [{"op": "mse_loss", "inputs": ["x", "y"], "outputs": ["loss"]}], HIDDEN,
               None, {"y": {"shape": HIDDEN}}, ["x", "y"]),
        OpCase("router", "router",
               [{"op": "router", "inputs": ["x"], "experts_per_token": 2, "outputs": ["weights", "chosen"]},
                {"op": "silu", "inputs": ["weights"]}], [256, 8], [256, 2]),
    ]


def _decoder(name: str, kind: str = "attention", rows: Shape | None = None, uses: tuple[str, ...] = (),
             plan: Values | None = None, layer: Values | None = None, table: Values | None = None) -> OpCase:
    """A language model of two layers. `table`: options of its rotary table."""
    rows = rows or [2, 256]
    family = {"family": layer["family"]} if layer and "family" in layer else {}
    tokens = {"shape": rows, "dtype": "int64"}
    block = {"name": "model.layers.{0..1}", "block": "decoder_layer", "num_attention_heads": 4,
             "num_key_value_heads": 2, "intermediate_size": 512, **(layer or {})}
    inputs = {"input_ids": tokens, "labels": tokens}
    return OpCase(kind, f"model_{name}", [], rows, None, inputs, [], uses, plan or {}, modules=[
        {"name": "model.embed_tokens", "block": "token_embedding", "vocab_size": 1000, "hidden_size": 256},
        {"name": "model.rotary_emb", "block": "rotary_table", "head_dim": 64, **family, **(table or {})}, block,
        {"name": "model.norm", "block": "rms_norm"}, {"name": "lm_head", "block": "lm_head", "vocab_size": 1000},
        {"name": "", "block": "cross_entropy", "shift": True}])


def _checkpointed(mode: str, **options: Any) -> Values:
    return {"activation_checkpointing": {"modules": [{"module": "model.layers.{0..1}", "mode": mode}], **options}}


def _other_decoders() -> list[OpCase]:
    """The parts in which families differ from Llama."""
    cohere = {"norm": "layer_wide", "norms": "shared", "interleaved_rotary": True, "wide_rotary": True}
    phi = {"norm": "layer", "norms": "shared_last", "mlp": "fc", "activation": "gelu_new", "layer_dropout": 0.1, "partial_rotary": True,
           "output_projection": "dense"}
    return [
        _decoder("decoder_wide_layer_norms", "layer_norm", layer=cohere, table={"interleaved": True}),
        _decoder("decoder_side_by_side", "layer_norm", layer=phi, table={"head_dim": 32}),
        _decoder("decoder_unit_layer_norms", "layer_norm", layer={"norm": "layer_unit", "mlp": "up_down", "activation": "relu2"}),
        _decoder("decoder_neighbors", "rotary", layer={"interleaved_rotary": True}, table={"wide": True}),
        _decoder("decoder_scaled_queries", "rotary", layer={"scaled_queries": True, "mlp": "c_fc", "activation": "gelu"}),
        _decoder("decoder_qk_norm_last", "rms_norm", layer={"qk_norm_last": True}, uses=("rms_norm",)),
    ]


def _llama4() -> list[OpCase]:
    """Layers of Llama 4: experts that all run, chunks, and positions that scale queries."""
    table = {"head_dim": 64, "complex": True, "elementwise": True}

    def case(name: str, table: Values, **options: Any) -> OpCase:
        layer = {"block": "llama4_layer", "family": "Llama4Text", "complex_rotary": True, **options}
        return _decoder(f"llama4_{name}", "dense_experts", layer=layer, table=table)

    return [
        case("experts", table, num_experts=4, num_experts_per_tok=2, qk_l2_norm=True),
        case("chunks", {**table, "sliding_window": 128, "chunked_mask": True}, sliding_window=128),
        case("temperature", table, temperature_tuning=True, num_experts=2, per_layer={"rope": [True, False]}),
    ]


def _models() -> list[OpCase]:
    tokens = {"shape": [2, 256], "dtype": "int64"}
    few = {"shape": [2, 64], "dtype": "int64"}
    experts = {"block": "moe_layer", "family": "Mixtral", "num_experts": 8, "num_experts_per_tok": 2,
               "moe_intermediate_size": 384, "naming": "mixtral"}
    moe = _decoder("moe", "experts", layer=experts)
    del moe.modules[2]["intermediate_size"]  # The experts have their own.
    return [
        _decoder("rotary", "rotary", uses=("rotary", "attention")), _decoder("table", "rotary_table", uses=("rotary",)),
        _decoder("decoder", uses=("attention",)), _decoder("decoder_one_row", rows=[1, 512], uses=("attention",)),
        _decoder("decoder_norms", "rms_norm", uses=("rms_norm", "rotary")),
        _decoder("decoder_repeats", uses=("attention", "repeat_kv")),
        _decoder("decoder_qk_norm", layer={"qk_norm": True}, uses=("rms_norm",)),
        _decoder("decoder_logits", "cross_entropy", uses=("loss", "upcast_logits", "keep_logits")),
        _decoder("checkpoint_full", plan=_checkpointed("full"), uses=("rms_norm",)),
        _decoder("checkpoint_to_the_end", plan=_checkpointed("full", early_stop=False)),
        _decoder("checkpoint_selective", plan=_checkpointed("selective"), uses=("rms_norm", "rotary")),
        _decoder("checkpoint_selective_repeats", plan=_checkpointed("selective"), uses=("attention", "repeat_kv")),
        moe,
        OpCase("gelu", "model_gpt2", [], [2, 256], None, {"input_ids": tokens, "labels": tokens}, [], ("attention",),
               modules=[
            {"name": "transformer", "block": "gpt2_embeddings", "vocab_size": 1000, "max_positions": 256,
             "hidden_size": 256, "dropout": 0.1},
            {"name": "transformer.h.{0..1}", "block": "gpt2_layer", "num_attention_heads": 4, "dropout": 0.1},
            {"name": "transformer.ln_f", "block": "layer_norm"},
            {"name": "lm_head", "block": "lm_head", "vocab_size": 1000},
            {"name": "", "block": "cross_entropy", "shift": True}]),
        OpCase("conv2d", "model_vit", [], [4, 3, 64, 64], None,
               {"pixel_values": {"shape": [4, 3, 64, 64]}, "labels": {"shape": [4], "dtype": "int64"}}, [],
               ("attention",), modules=[
            {"name": "", "block": "vit_embeddings", "patch_size": 16, "hidden_size": 256},
            {"name": "encoder.layers.encoder_layer_{0..1}", "block": "vit_layer", "num_attention_heads": 4,
             "intermediate_size": 512},
            {"name": "encoder.ln", "block": "layer_norm"}, {"name": "", "block": "vit_head", "num_classes": 100},
            {"name": "", "block": "cross_entropy"}]),
        OpCase("layer_norm", "model_bert", [], [2, 256], None,
               {"input_ids": tokens, "token_type_ids": tokens, "labels": tokens,
                "next_sentence_label": {"shape": [2], "dtype": "int64"}}, [], ("attention",), modules=[
            {"name": "bert.embeddings", "block": "bert_embeddings", "vocab_size": 1000, "hidden_size": 256,
             "max_positions": 256, "dropout": 0.1},
            {"name": "bert.encoder.layer.{0..1}", "block": "bert_layer", "num_attention_heads": 4,
             "intermediate_size": 512, "dropout": 0.1},
            {"name": "bert.pooler", "block": "bert_pooler"},
            {"name": "cls", "block": "bert_pretraining_heads", "vocab_size": 1000},
            {"name": "", "block": "bert_pretraining_loss"}]),
        OpCase("layer_norm", "model_bert_masked", [], [2, 256], None,
               {"input_ids": tokens, "token_type_ids": tokens, "labels": tokens}, [], ("attention",), modules=[
            {"name": "bert.embeddings", "block": "bert_embeddings", "vocab_size": 1000, "hidden_size": 256,
             "max_positions": 256},
            {"name": "bert.encoder.layer.{0..1}", "block": "bert_layer", "num_attention_heads": 4,
             "intermediate_size": 512, "dropout": 0.1, "attention_dropout": 0.2},
            {"name": "cls", "block": "bert_mlm_head", "vocab_size": 1000},
            {"name": "", "block": "cross_entropy"}]),
        OpCase("attention", "model_whisper", [], [2, 64], None,
               {"input_features": {"shape": [2, 32, 400]}, "decoder_input_ids": few, "labels": few}, [], ("attention",),
               modules=[
            {"name": "model.encoder", "block": "whisper_encoder_stem", "hidden_size": 256, "max_positions": 200},
            {"name": "model.encoder.layers.{0..1}", "block": "whisper_encoder_layer", "num_attention_heads": 4,
             "intermediate_size": 512},
            {"name": "model.encoder.layer_norm", "block": "layer_norm", "outputs": {"hidden": "encoder_hidden"}},
            {"name": "model.decoder", "block": "whisper_decoder_embedding", "vocab_size": 1000, "hidden_size": 256,
             "max_positions": 64},
            {"name": "model.decoder.layers.{0..1}", "block": "whisper_decoder_layer", "num_attention_heads": 4,
             "intermediate_size": 512},
            {"name": "model.decoder.layer_norm", "block": "layer_norm"},
            {"name": "proj_out", "block": "lm_head", "vocab_size": 1000}, {"name": "", "block": "cross_entropy"}]),
        OpCase("attention", "model_t5", [], [2, 256], None,
               {"input_ids": tokens, "decoder_input_ids": few, "labels": few}, [], ("attention",), modules=_t5()),
    ]


def _towers() -> list[OpCase]:
    """A tower whose forward does not run, and the rotary tables of such models."""
    idle = _decoder("tower_idle")
    (idle.modules or []).insert(1, {"name": "tower.{0..1}", "block": "idle", "class": "TowerLayer", "called": False,
                                    "layers": "norm LayerNorm 64 bias; fc Linear 128 64; probe Parameter 1 64; steps Buffer 16"})
    return [
        idle, _decoder("tables_by_sample", "rotary_table", table={"by_sample": True}),
    ]


def _nemotron(name: str, rows: Shape, **options: Any) -> OpCase:
    """A state space, attention and an MLP of Nemotron-H."""
    tokens = {"shape": rows, "dtype": "int64"}
    block = {"name": "model.layers.{0..2}", "block": "nemotron_h_block", "family": "NemotronH", "mamba_num_heads": 8, "mamba_head_dim": 32,
             "ssm_state_size": 16, "n_groups": 2, "chunk_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
             "intermediate_size": 512, "time_step_min": 0.001, "per_layer": {"mixer": ["mamba", "attention", "mlp"]}, **options}
    return OpCase("state_space", f"model_{name}", [], rows, None, {"input_ids": tokens, "labels": tokens}, [], (), modules=[
        {"name": "model.embeddings", "block": "token_embedding", "vocab_size": 1000, "hidden_size": 256}, block,
        {"name": "model.norm_f", "block": "rms_norm", "wide_weight": True}, {"name": "lm_head", "block": "lm_head", "vocab_size": 1000},
        {"name": "", "block": "cross_entropy", "shift": True}])


def _hybrids() -> list[OpCase]:
    """Layers with linear attention in the place of attention: rows that are whole chunks, and rows that are not."""
    heads = {"linear_attention": True, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
             "linear_value_head_dim": 64, "unit_offset": True}
    fused = {**heads, "fused_linear_projections": True}
    # Without unit_offset: a sum of such a norm in fp32 is compared alone.
    gated = {"gated_output": True, "qk_norm": True, "partial_rotary": True}
    cases = [
        _decoder("hybrid", "gated_delta_rule", layer=heads), _decoder("hybrid_padded", "gated_rms_norm", rows=[2, 200], layer=heads),
        _decoder("hybrid_one_row", "decay_rate", rows=[1, 700], layer={**heads, "linear_num_key_heads": 4}),
        _decoder("hybrid_fused_padded", "causal_conv1d", rows=[3, 150], layer=fused), _decoder("hybrid_fused", "split", layer=fused),
        _nemotron("state_space", [2, 200]), _nemotron("state_space_whole_chunks", [1, 256], conv_bias=False),
        _decoder("hybrid_gated_output", layer=gated, table={"head_dim": 32}),
    ]
    for case in cases[:-1]:
        case.dtypes = ("bfloat16",)  # Others are refused.
    return cases


def _encoders() -> list[OpCase]:
    """RoBERTa for classes."""
    tokens = {"shape": [2, 256], "dtype": "int64"}
    body = [{"name": "roberta.embeddings", "block": "roberta_embeddings", "vocab_size": 1000, "hidden_size": 256, "max_positions": 300,
             "padding_idx": 1, "dropout": 0.1},
            {"name": "roberta.encoder.layer.{0..1}", "block": "bert_layer", "num_attention_heads": 4, "intermediate_size": 512,
             "family": "Roberta", "dropout": 0.1}]

    return [OpCase("layer_norm", "model_roberta", [], [2, 256], None, {"input_ids": tokens, "labels": {"shape": [2], "dtype": "int64"}}, [],
                   ("attention",), modules=[
        *body, {"name": "classifier", "block": "roberta_classification_head", "num_classes": 5, "dropout": 0.1},
        {"name": "", "block": "cross_entropy"}])]


def _t5() -> list[Values]:
    block = {"block": "t5_block", "num_attention_heads": 4, "head_dim": 64, "intermediate_size": 512,
             "per_layer": {"relative_attention_buckets": [32, 0]}}

    def dropout(name: str, given: str) -> Values:
        return {"name": name, "class": "Dropout", "ops": [{"op": "dropout", "inputs": ["hidden"], "probability": 0.1,
                                                           "outputs": [given]}]}

    table = {"name": "shared", "block": "token_embedding", "vocab_size": 1000, "hidden_size": 256}
    return [table, dropout("encoder.dropout", "hidden"), {"name": "encoder.block.{0..1}", **block},
            {"name": "encoder.final_layer_norm", "class": "T5LayerNorm", "block": "rms_norm"},
            dropout("encoder.dropout", "encoder_hidden"), {**table, "inputs": {"input_ids": "decoder_input_ids"}},
            dropout("decoder.dropout", "hidden"), {"name": "decoder.block.{0..1}", **block, "decoder": True},
            {"name": "decoder.final_layer_norm", "class": "T5LayerNorm", "block": "rms_norm"},
            dropout("decoder.dropout", "hidden"), {"name": "lm_head", "block": "lm_head", "vocab_size": 1000},
            {"name": "", "block": "cross_entropy"}]


def op_cases() -> list[OpCase]:
    return [*_dense(), *_norms(), *_attentions(), *_elementwise(), *_shapes(), *_ends(), *_models(), *_other_decoders(), *_llama4(), *_towers(),
            *_hybrids(), *_encoders()]

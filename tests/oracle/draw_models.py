"""Small model specs with odd sizes, drawn at random: what is wrapped, tied, shared and frozen is not for good figures but for
every shape that FSDP2 may meet."""

from __future__ import annotations

import random
from typing import Any

Spec = dict[str, Any]


def draw_model(rng: random.Random) -> Spec:
    """A spec file's object."""
    return rng.choice((_llama, _llama, _gpt2, _bert, _vit, _t5, _mlp, _mlp))(rng)


def draw_ends(rng: random.Random, spec: Spec) -> None:
    """Changes what goes into the model and what comes out: images in fp32, logits in fp32, a loss after the root."""
    for given in spec["inputs"].values():
        if "dtype" not in given and rng.random() < 0.5:
            given["dtype"] = "float32"
    loss = spec["modules"][-1]
    if loss.get("block") != "cross_entropy":
        return
    if rng.random() < 0.3:
        loss["after_root"] = True
    if rng.random() < 0.3:
        spec["modules"].insert(-1, {"name": "", "inputs": ["logits"], "outputs": ["logits"], "ops": [
            {"op": "cast", "inputs": ["logits"], "dtype": "float32", "outputs": ["logits"]}]})


def _spec(name: str, rng: random.Random, dimensions: dict[str, Any], inputs: dict[str, Any], modules: list[Any],
          **more: Any) -> Spec:
    return {"format_version": "1.0", "name": name, "source": "drawn at random",
            "dtype": rng.choice(("float32", "float32", "bfloat16")), "dimensions": dimensions, "inputs": inputs,
            "modules": modules, **more}


def _tokens(*names: str) -> dict[str, Any]:
    return {name: {"shape": ["batch", "seq"], "dtype": "int64"} for name in names}


def _text(rng: random.Random) -> dict[str, Any]:
    return {"batch": rng.randint(1, 3), "seq": rng.choice((7, 16, 24, 33, 64))}


def _llama(rng: random.Random) -> Spec:
    head_dim = rng.choice((8, 12, 16, 20, 32))
    kv_heads, groups = rng.randint(1, 3), rng.randint(1, 3)
    heads = kv_heads * groups
    hidden, vocab, layers = rng.choice((24, 40, 64, 72, 104)), rng.randint(17, 300), rng.randint(1, 7)
    layer = {"name": "model.layers.{0..%d}" % (layers - 1), "block": "decoder_layer", "num_attention_heads": heads,
             "num_key_value_heads": kv_heads, "head_dim": head_dim, "intermediate_size": rng.randint(20, 200) * 2,
             "qk_norm": rng.random() < 0.3, "qkv_bias": rng.random() < 0.3}
    # As ALBERT and universal transformers: the last layer runs again.
    again = [{**layer, "name": f"model.layers.{layers - 1}"}] * rng.choice((0, 0, 0, 0, 1, 2))
    modules = [
        {"name": "model.embed_tokens", "block": "token_embedding", "vocab_size": vocab, "hidden_size": hidden},
        {"name": "model.rotary_emb", "block": "rotary_table", "head_dim": head_dim},
        layer,
        *again,
        {"name": "model.norm", "class": "LlamaRMSNorm", "block": "rms_norm"},
        {"name": "lm_head", "block": "lm_head", "vocab_size": vocab},
        {"name": "", "block": "cross_entropy", "shift": True}]
    return _spec("Drawn-Llama", rng, _text(rng), _tokens("input_ids", "labels"), modules,
                 classes={"": "LlamaForCausalLM", "model": "LlamaModel"},
                 registration=["model.embed_tokens", "model.layers", "model.norm", "model.rotary_emb"],
                 tied={"lm_head.weight": "model.embed_tokens.weight"} if rng.random() < 0.4 else {})


def _gpt2(rng: random.Random) -> Spec:
    heads = rng.randint(1, 4)
    hidden, vocab, layers = heads * rng.choice((8, 10, 16, 24)), rng.randint(17, 300), rng.randint(1, 6)
    dropout = rng.choice((0, 0.1))
    modules = [
        {"name": "transformer", "block": "gpt2_embeddings", "vocab_size": vocab, "max_positions": rng.randint(64, 101),
         "hidden_size": hidden, "dropout": dropout},
        {"name": "transformer.h.{0..%d}" % (layers - 1), "block": "gpt2_layer", "num_attention_heads": heads,
         "dropout": dropout},
        {"name": "transformer.ln_f", "block": "layer_norm"},
        {"name": "lm_head", "block": "lm_head", "vocab_size": vocab},
        {"name": "", "block": "cross_entropy", "shift": True}]
    return _spec("Drawn-GPT-2", rng, _text(rng), _tokens("input_ids", "labels"), modules,
                 classes={"": "GPT2LMHeadModel"},
                 tied={"lm_head.weight": "transformer.wte.weight"} if rng.random() < 0.7 else {})


def _bert(rng: random.Random) -> Spec:
    heads = rng.randint(1, 4)
    hidden, vocab, layers = heads * rng.choice((8, 12, 16)), rng.randint(17, 300), rng.randint(1, 4)
    modules = [
        {"name": "bert.embeddings", "block": "bert_embeddings", "vocab_size": vocab, "hidden_size": hidden,
         "max_positions": 101, "dropout": 0.1},
        {"name": "bert.encoder.layer.{0..%d}" % (layers - 1), "block": "bert_layer", "num_attention_heads": heads,
         "intermediate_size": rng.randint(20, 200), "dropout": 0.1},
        {"name": "bert.pooler", "block": "bert_pooler"},
        {"name": "cls", "block": "bert_pretraining_heads", "vocab_size": vocab},
        {"name": "", "block": "bert_pretraining_loss"}]
    inputs = _tokens("input_ids", "token_type_ids", "labels")
    inputs["next_sentence_label"] = {"shape": ["batch"], "dtype": "int64"}
    return _spec("Drawn-BERT", rng, _text(rng), inputs, modules,
                 classes={"": "BertForPreTraining", "bert": "BertModel", "bert.encoder": "BertEncoder"},
                 tied={"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
                       "cls.predictions.decoder.bias": "cls.predictions.bias"})


def _vit(rng: random.Random) -> Spec:
    heads = rng.randint(1, 4)
    layers = rng.randint(1, 4)
    modules = [
        {"name": "", "block": "vit_embeddings", "patch_size": 8, "hidden_size": heads * rng.choice((8, 10, 16, 24))},
        {"name": "encoder.layers.encoder_layer_{0..%d}" % (layers - 1), "block": "vit_layer",
         "num_attention_heads": heads, "intermediate_size": rng.randint(20, 200)},
        {"name": "encoder.ln", "block": "layer_norm"},
        {"name": "", "block": "vit_head", "num_classes": rng.randint(2, 50)},
        {"name": "", "block": "cross_entropy"}]
    return _spec("Drawn-ViT", rng, {"batch": rng.randint(1, 4), "image_size": rng.choice((16, 24, 32))},
                 {"pixel_values": {"shape": ["batch", 3, "image_size", "image_size"]},
                  "labels": {"shape": ["batch"], "dtype": "int64"}}, modules, classes={"encoder.layers": "Sequential"})


def _t5(rng: random.Random) -> Spec:
    layers, hidden, vocab = rng.randint(1, 3), rng.choice((24, 40, 64)), rng.randint(17, 300)
    block = {"block": "t5_block", "num_attention_heads": rng.randint(1, 4), "head_dim": rng.choice((8, 12, 16)),
             "intermediate_size": rng.randint(20, 200),
             "per_layer": {"relative_attention_buckets": [32] + [0] * (layers - 1)}}
    embedding = {"name": "shared", "block": "token_embedding", "vocab_size": vocab, "hidden_size": hidden}
    modules = [
        embedding,
        {"name": "encoder.block.{0..%d}" % (layers - 1), **block},
        {"name": "encoder.final_layer_norm", "class": "T5LayerNorm", "block": "rms_norm",
         "outputs": {"hidden": "encoder_hidden"}},
        {**embedding, "inputs": {"input_ids": "decoder_input_ids"}},
        {"name": "decoder.block.{0..%d}" % (layers - 1), **block, "decoder": True},
        {"name": "decoder.final_layer_norm", "class": "T5LayerNorm", "block": "rms_norm"},
        {"name": "lm_head", "block": "lm_head", "vocab_size": vocab},
        {"name": "", "block": "cross_entropy"}]
    inputs = _tokens("input_ids")
    inputs |= {name: {"shape": ["batch", "target_seq"], "dtype": "int64"} for name in ("decoder_input_ids", "labels")}
    return _spec("Drawn-T5", rng, {**_text(rng), "target_seq": rng.randint(3, 20)}, inputs, modules,
                 classes={"": "T5ForConditionalGeneration", "encoder": "T5Stack", "decoder": "T5Stack"},
                 tied={"lm_head.weight": "shared.weight"} if rng.random() < 0.5 else {})


def _mlp(rng: random.Random) -> Spec:
    """Blocks of linear layers, some of which run again at once or pass by those before; some hold a part that is shared."""
    width = rng.randint(3, 61)
    shares, skips = rng.random() < 0.4, rng.random() < 0.4
    modules: list[Any] = []
    for number in range(rng.randint(1, 5)):
        ops: list[Any] = [{"op": "linear", "module": "up", "inputs": ["x"], "out_features": rng.randint(1, 67),
                           "bias": rng.random() < 0.7},
                          {"op": rng.choice(("relu", "gelu", "tanh", "silu")), "module": "act"},
                          {"op": "linear", "module": "down", "out_features": width, "outputs": ["y"]}]
        if skips:
            ops.append({"op": "add", "inputs": ["x", "y"], "outputs": ["y"]})
        modules += [{"name": f"blocks.{number}", "class": "Block", "ops": ops, "inputs": {"x": "x"},
                     "outputs": {"y": "x"}}] * rng.choice((1, 1, 1, 2, 3))
        if shares and number % 2 == 0:
            modules.append({"name": "mixer", "class": "Mixer", "inputs": {"x": "x"}, "outputs": {"y": "x"},
                            "ops": [{"op": "linear", "module": "mix", "inputs": ["x"], "out_features": width,
                                     "outputs": ["y"]}]})
    modules.append({"name": "head", "class": "Head", "inputs": {"x": "x"}, "outputs": {"logits": "logits"},
                    "ops": [{"op": "linear", "module": "out", "inputs": ["x"], "out_features": rng.randint(2, 9),
                             "outputs": ["logits"]}]})
    modules.append({"name": "", "block": "cross_entropy"})
    return _spec("Drawn-MLP", rng, {"batch": rng.randint(1, 9)},
                 {"x": {"shape": ["batch", width]}, "labels": {"shape": ["batch"], "dtype": "int64"}}, modules)

#include "tests/support/collective_models.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

#include "tests/support/assemble_model.h"

namespace fsdp {

namespace {

constexpr std::int64_t kBatch = 1;
constexpr std::int64_t kSeq = 8;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

class Sizes {
 public:
  explicit Sizes(const Words& words) : words_(words) {}

  std::string text(const std::string& key) const {
    const auto found = words_.find(key);
    return found == words_.end() ? "" : found->second;
  }
  std::int64_t number(const std::string& key, std::int64_t otherwise = 0) const {
    const std::string found = text(key);
    return found.empty() ? otherwise : std::stoll(found);
  }

 private:
  const Words& words_;
};

void token_inputs(ModelAssembler& model) {
  model.input("ids", {kBatch, kSeq}, Dtype::Int64);
  model.input("labels", {kBatch, kSeq}, Dtype::Int64);
}

void head_and_loss(ModelAssembler& model, const std::string& norm, const std::string& norm_kind,
                   const std::string& head, std::int64_t classes, bool bias) {
  BlockBuilder last = model.block("norm", norm_kind);
  const BlockValue hidden = last.input("hidden");
  last.output("hidden", norm_kind == "RMSNorm" ? last.rms_norm("", hidden) : last.layer_norm("", hidden));
  model.call(norm, std::move(last));
  BlockBuilder top = model.block("head", "Linear");
  top.output("logits", top.linear("", top.input("hidden"), classes, {.bias = bias}));
  model.call(head, std::move(top));
  // The loss is a part of the root's own forward here.
  BlockBuilder loss = model.block("loss", "Loss");
  loss.output("loss", loss.cross_entropy(loss.input("logits"), loss.input("labels"), false));
  model.call("", std::move(loss));
}

// ---- Llama, also with LoRA, biases, norms of queries and keys, experts.

struct LlamaSizes {
  std::int64_t hidden, heads, kv_heads, head_dim, ffn, experts, lora_rank;
  bool qkv_bias, qk_norm;
  std::vector<std::string> lora_targets;

  bool has_lora(const std::string& name) const {
    return std::find(lora_targets.begin(), lora_targets.end(), name) != lora_targets.end();
  }
};

BlockValue projection(BlockBuilder& b, const LlamaSizes& m, const std::string& name, BlockValue x, std::int64_t out) {
  if (!m.has_lora(name)) return b.linear(name, x, out, {.bias = m.qkv_bias});
  const auto scope = b.enter(name, "LoraLinear");
  const BlockValue base = b.linear("base", x, out, {.bias = m.qkv_bias});
  return b.add(base, b.linear("lora_B", b.linear("lora_A", x, m.lora_rank), out));
}

BlockValue attend(BlockBuilder& b, const LlamaSizes& m, BlockValue x) {
  const auto scope = b.enter("self_attn", "Attention");
  const auto heads_of = [&](const std::string& name, std::int64_t heads) {
    return b.reshape(projection(b, m, name, x, heads * m.head_dim), {kBatch, kSeq, heads, m.head_dim});
  };
  BlockValue q = heads_of("q_proj", m.heads);
  BlockValue k = heads_of("k_proj", m.kv_heads);
  const BlockValue v = heads_of("v_proj", m.kv_heads);
  if (m.qk_norm) q = b.rms_norm("q_norm", q);
  if (m.qk_norm) k = b.rms_norm("k_norm", k);
  const auto turned = b.rotary(q, k, {b.input("cos"), b.input("sin")});
  return b.linear("o_proj", b.attention(turned.query, turned.key, v, {}), m.hidden);
}

BlockValue feed_forward(BlockBuilder& b, const LlamaSizes& m, BlockValue x) {
  if (m.experts == 0) {
    const auto scope = b.enter("mlp", "MLP");
    const BlockValue gate = b.silu(b.linear("gate_proj", x, m.ffn));
    return b.linear("down_proj", b.mul(gate, b.linear("up_proj", x, m.ffn)), m.hidden);
  }
  // Stacked experts, as one parameter each: read, and used somehow.
  const auto scope = b.enter("mlp", "MoE");
  const BlockValue scores = b.softmax(b.linear("router", x, m.experts), -1);
  const BlockValue gate_up = b.parameter("gate_up", {m.experts, m.hidden, 2 * m.ffn});
  const BlockValue down = b.parameter("down", {m.experts, m.ffn, m.hidden});
  const BlockValue first = b.mul(x, b.sum(b.sum(gate_up, 0, false), -1, false));
  const BlockValue second = b.mul(first, b.sum(b.sum(down, 0, false), 0, false));
  return b.mul(second, b.sum(scores, -1, true));
}

Model llama(const Sizes& sizes, Dtype dtype) {
  LlamaSizes m{.hidden = sizes.number("hidden"),
               .heads = sizes.number("heads"),
               .kv_heads = sizes.number("kv_heads"),
               .head_dim = sizes.number("head_dim", sizes.number("hidden") / sizes.number("heads")),
               .ffn = sizes.number("ffn"),
               .experts = sizes.number("experts"),
               .lora_rank = sizes.number("lora_r"),
               .qkv_bias = sizes.number("qkv_bias") != 0,
               .qk_norm = sizes.number("qk_norm") != 0,
               .lora_targets = split(sizes.text("lora_targets"), ',')};
  ModelAssembler model("llama", dtype);
  token_inputs(model);
  model.input("cos", {1, kSeq, m.head_dim}, std::nullopt, false);
  model.input("sin", {1, kSeq, m.head_dim}, std::nullopt, false);
  BlockBuilder embed = model.block("embedding", "Embedding");
  embed.output("hidden", embed.embedding("", embed.input("ids"), sizes.number("vocab"), m.hidden));
  model.call("model.embed_tokens", std::move(embed));
  for (std::int64_t layer = 0; layer < sizes.number("layers"); ++layer) {
    BlockBuilder b = model.block("layer", "DecoderLayer");
    b.declare("self_attn", "Attention");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      const std::string full = "self_attn." + std::string(name);
      b.declare(full, m.has_lora(name) ? "LoraLinear" : "Linear");
      for (const char* part : {".base", ".lora_A", ".lora_B"}) {
        if (m.has_lora(name)) b.declare(full + part, "Linear");
      }
    }
    for (const char* name : {"self_attn.q_norm", "self_attn.k_norm"}) {
      if (m.qk_norm) b.declare(name, "RMSNorm");
    }
    b.declare("mlp", m.experts > 0 ? "MoE" : "MLP");
    if (m.experts > 0) b.declare("mlp.router", "Linear");
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
      if (m.experts == 0) b.declare("mlp." + std::string(name), "Linear");
    }
    for (const char* name : {"input_layernorm", "post_attention_layernorm"}) b.declare(name, "RMSNorm");
    const BlockValue x = b.input("hidden");
    const BlockValue y = b.add(x, attend(b, m, b.rms_norm("input_layernorm", x)));
    b.output("hidden", b.add(y, feed_forward(b, m, b.rms_norm("post_attention_layernorm", y))));
    model.call("model.layers." + std::to_string(layer), std::move(b), true);
  }
  head_and_loss(model, "model.norm", "RMSNorm", "lm_head", sizes.number("vocab"), false);
  if (sizes.number("tied") != 0) model.tie("lm_head.weight", "model.embed_tokens.weight");
  return model.finish("loss");
}

// ---- GPT-2 and ViT.

BlockValue encoder_block(BlockBuilder& b, BlockValue x, std::int64_t heads, std::int64_t ffn, bool conv1d, bool vit) {
  const std::int64_t width = b.size(x, -1);
  const std::int64_t tokens = b.size(x, 1);
  const std::int64_t batch = b.size(x, 0);
  const LinearOptions options{.bias = true, .transposed_weight = conv1d};
  const BlockValue qkv = b.linear(vit ? "qkv" : "c_attn", b.layer_norm(vit ? "norm1" : "ln_1", x), 3 * width, options);
  std::vector<BlockValue> parts;
  for (const BlockValue part : b.split(qkv, 3, -1)) {
    parts.push_back(b.reshape(part, {batch, tokens, heads, width / heads}));
  }
  const BlockValue attended = b.attention(parts[0], parts[1], parts[2], {.causal = !vit});
  const BlockValue y = b.add(x, b.linear(vit ? "proj" : "attn_proj", attended, width, options));
  const BlockValue inner = b.linear(vit ? "fc1" : "c_fc", b.layer_norm(vit ? "norm2" : "ln_2", y), ffn, options);
  return b.add(y, b.linear(vit ? "fc2" : "mlp_proj", b.gelu(inner, !vit), width, options));
}

Model gpt2(const Sizes& sizes, Dtype dtype) {
  const std::int64_t hidden = sizes.number("hidden");
  ModelAssembler model("gpt2", dtype);
  token_inputs(model);
  model.input("positions", {kSeq}, Dtype::Int64, false);
  BlockBuilder embed = model.block("embeddings", "GPT2");
  const BlockValue tokens = embed.embedding("wte", embed.input("ids"), sizes.number("vocab"), hidden);
  const BlockValue places = embed.embedding("wpe", embed.input("positions"), sizes.number("positions"), hidden);
  embed.output("hidden", embed.add(tokens, places));
  model.call("", std::move(embed));
  for (std::int64_t layer = 0; layer < sizes.number("layers"); ++layer) {
    BlockBuilder b = model.block("block", "GPT2Block");
    b.output("hidden", encoder_block(b, b.input("hidden"), sizes.number("heads"), 4 * hidden,
                                     sizes.number("conv1d") != 0, false));
    model.call("h." + std::to_string(layer), std::move(b), true);
  }
  head_and_loss(model, "ln_f", "LayerNorm", "lm_head", sizes.number("vocab"), false);
  if (sizes.number("tied") != 0) model.tie("lm_head.weight", "wte.weight");
  return model.finish("loss");
}

Model vit(const Sizes& sizes, Dtype dtype) {
  const std::int64_t hidden = sizes.number("hidden");
  const std::int64_t patch = sizes.number("patch");
  const std::int64_t patches = (sizes.number("image") / patch) * (sizes.number("image") / patch);
  ModelAssembler model("vit", dtype);
  model.input("images", {2, 3, sizes.number("image"), sizes.number("image")}, Dtype::Float32);
  model.input("labels", {2}, Dtype::Int64);
  BlockBuilder stem = model.block("stem", "ViT");
  const BlockValue grid = stem.conv2d("patch_embed", stem.input("images"), hidden, {.kernel = patch, .stride = patch});
  const BlockValue rows = stem.transpose(stem.reshape(grid, {2, hidden, patches}), 1, 2);
  const BlockValue token = stem.expand(stem.parameter("cls_token", {1, 1, hidden}), {2, 1, hidden});
  stem.output("hidden", stem.add(stem.cat({token, rows}, 1), stem.parameter("pos_embed", {1, patches + 1, hidden})));
  model.call("", std::move(stem));
  for (std::int64_t layer = 0; layer < sizes.number("layers"); ++layer) {
    BlockBuilder b = model.block("block", "ViTBlock");
    b.output("hidden", encoder_block(b, b.input("hidden"), sizes.number("heads"), sizes.number("mlp"), false, true));
    model.call("blocks." + std::to_string(layer), std::move(b), true);
  }
  BlockBuilder norm = model.block("norm", "LayerNorm");
  norm.output("normed", norm.layer_norm("", norm.input("hidden")));
  model.call("norm", std::move(norm));
  BlockBuilder pick = model.block("pick", "ViT");
  pick.output("first", pick.select(pick.input("normed"), 1, 0));
  model.call("", std::move(pick));
  BlockBuilder head = model.block("head", "Linear");
  head.output("logits", head.linear("", head.input("first"), sizes.number("classes"), {.bias = true}));
  model.call("head", std::move(head));
  BlockBuilder loss = model.block("loss", "Loss");
  loss.output("loss", loss.cross_entropy(loss.input("logits"), loss.input("labels"), false));
  model.call("", std::move(loss));
  return model.finish("loss");
}

// ---- A chain of linear layers, each block perhaps called several times in a row.

Model mlp(const Sizes& sizes, Dtype dtype) {
  std::vector<std::vector<std::int64_t>> blocks;
  for (const std::string& widths : split(sizes.text("blocks"), ';')) {
    blocks.emplace_back();
    for (const std::string& width : split(widths, ',')) blocks.back().push_back(std::stoll(width));
  }
  ModelAssembler model("mlp", dtype);
  model.input(sizes.number("in") > 0 ? "x" : "hidden", {4, sizes.number("in") > 0 ? sizes.number("in") : blocks[0][0]},
              std::nullopt);
  if (sizes.number("in") > 0) {
    BlockBuilder stem = model.block("stem", "Linear");
    stem.output("hidden", stem.linear("", stem.input("x"), blocks[0][0], {.bias = true}));
    model.call("stem", std::move(stem));
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (std::int64_t again = 0; again < sizes.number("reuse", 1); ++again) {
      BlockBuilder b = model.block("block", "MLPBlock");
      BlockValue x = b.input("hidden");
      for (std::size_t w = 1; w < blocks[i].size(); ++w) {
        x = b.relu(b.linear("fcs." + std::to_string(w - 1), x, blocks[i][w], {.bias = true}));
      }
      b.output("hidden", x);
      model.call("blocks." + std::to_string(i), std::move(b), true);
    }
  }
  std::string last = "hidden";
  if (sizes.number("out") > 0) {
    BlockBuilder head = model.block("head", "Linear");
    last = "logits";
    head.output(last, head.linear("", head.input("hidden"), sizes.number("out"), {.bias = true}));
    model.call("head", std::move(head));
  }
  BlockBuilder loss = model.block("loss", "Loss");
  const BlockValue y = loss.input(last);
  loss.output("loss", loss.mean(loss.mean(loss.mul(y, y), -1, false), -1, false));
  model.call("", std::move(loss));
  return model.finish("loss");
}

// ---- T5: an encoder whose result all decoder layers read; one embedding, called twice.

BlockValue t5_attend(BlockBuilder& b, const Sizes& sizes, const std::string& name, BlockValue x, BlockValue memory,
                     bool causal) {
  const std::int64_t heads = sizes.number("heads");
  const std::int64_t dim = sizes.number("head_dim", 64);
  const auto heads_of = [&](const std::string& part, BlockValue from) {
    return b.reshape(b.linear(name + "." + part, from, heads * dim), {kBatch, kSeq, heads, dim});
  };
  const BlockValue q = heads_of("q", x);
  const BlockValue k = heads_of("k", memory);
  const BlockValue v = heads_of("v", memory);
  return b.linear(name + ".o", b.attention(q, k, v, {.causal = causal}), sizes.number("hidden"));
}

void t5_layers(ModelAssembler& model, const Sizes& sizes, const std::string& name, bool decoder) {
  const std::string stream = decoder ? "hidden" : "encoded";
  for (std::int64_t layer = 0; layer < sizes.number("layers"); ++layer) {
    BlockBuilder b = model.block(name, "T5Layer");
    BlockValue x = b.input(stream);
    const BlockValue normed = b.rms_norm("ln1", x);
    b.declare("att", "ModuleDict", false);
    x = b.add(x, t5_attend(b, sizes, "att", normed, normed, decoder));
    if (decoder) {
      const BlockValue crossed = b.rms_norm("lnx", x);
      b.declare("xatt", "ModuleDict", false);
      x = b.add(x, t5_attend(b, sizes, "xatt", crossed, b.input("encoded"), false));
    }
    const BlockValue inner = b.relu(b.linear("wi", b.rms_norm("ln2", x), sizes.number("ffn")));
    b.output(stream, b.add(x, b.linear("wo", inner, sizes.number("hidden"))));
    model.call(name + "." + std::to_string(layer), std::move(b), true);
  }
}

void t5_embed(ModelAssembler& model, const Sizes& sizes, const std::string& from, const std::string& to) {
  BlockBuilder embed = model.block("embedding", "Embedding");
  embed.output(to, embed.embedding("", embed.input(from), sizes.number("vocab"), sizes.number("hidden")));
  model.call("shared", std::move(embed));
}

Model t5(const Sizes& sizes, Dtype dtype) {
  ModelAssembler model("t5", dtype);
  token_inputs(model);
  t5_embed(model, sizes, "ids", "encoded");
  t5_layers(model, sizes, "encoder", false);
  BlockBuilder norm = model.block("norm", "RMSNorm");
  norm.output("encoded", norm.rms_norm("", norm.input("encoded")));
  model.call("enc_norm", std::move(norm));
  t5_embed(model, sizes, "labels", "hidden");
  t5_layers(model, sizes, "decoder", true);
  head_and_loss(model, "dec_norm", "RMSNorm", "lm_head", sizes.number("vocab"), false);
  if (sizes.number("tied") != 0) model.tie("lm_head.weight", "shared.weight");
  return model.finish("loss");
}

}  // namespace

Model collective_model(const std::string& kind, const Words& words, Dtype dtype) {
  const Sizes sizes(words);
  if (kind == "llama" || kind == "moe") return llama(sizes, dtype);
  if (kind == "gpt2") return gpt2(sizes, dtype);
  if (kind == "vit") return vit(sizes, dtype);
  if (kind == "mlp") return mlp(sizes, dtype);
  if (kind == "t5") return t5(sizes, dtype);
  std::cerr << "no model " << kind << "\n";
  std::abort();
}

}  // namespace fsdp

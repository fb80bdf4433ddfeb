#include "tests/support/traced_models.h"

#include "tests/support/assemble_model.h"

namespace fsdp {

namespace {

// x[:, :, :, None, :].expand(...).reshape(batch, seq, heads, dim)
BlockValue to_all_heads(BlockBuilder& b, BlockValue x, const TracedSizes& s) {
  const std::int64_t copies = s.heads / s.kv_heads;
  const BlockValue apart = b.reshape(x, {s.batch, s.seq, s.kv_heads, 1, s.head_dim()});
  const BlockValue expanded = b.expand(apart, {s.batch, s.seq, s.kv_heads, copies, s.head_dim()});
  return b.reshape(b.contiguous(expanded), {s.batch, s.seq, s.heads, s.head_dim()});
}

// turned = cat([-x[..., half:], x[..., :half]]); x * cos + turned * sin
BlockValue rotate(BlockBuilder& b, BlockValue x, const TracedSizes& s) {
  const std::int64_t half = s.head_dim() / 2;
  const Shape table = {1, s.seq, 1, s.head_dim()};
  const BlockValue negated = b.scale(b.slice(x, 3, half, half), -1);
  const BlockValue turned = b.cat({negated, b.slice(x, 3, 0, half)}, 3);
  const BlockValue by_cos = b.mul(x, b.reshape(b.input("cos"), table));
  return b.add(by_cos, b.mul(turned, b.reshape(b.input("sin"), table)));
}

BlockBuilder llama_block(const ModelAssembler& model, const TracedSizes& s) {
  BlockBuilder b = model.block("layer", "LlamaBlock");
  for (const char* name : {"attention_norm", "ffn_norm"}) b.declare(name, "RMSNorm");
  for (const char* name : {"wq", "wk", "wv", "wo", "w1", "w3", "w2"}) b.declare(name, "Linear");
  const std::int64_t d = s.head_dim();
  const BlockValue x = b.input("hidden");
  const BlockValue normed = b.rms_norm("attention_norm", x);
  BlockValue q = b.reshape(b.linear("wq", normed, s.heads * d), {s.batch, s.seq, s.heads, d});
  BlockValue k = b.reshape(b.linear("wk", normed, s.kv_heads * d), {s.batch, s.seq, s.kv_heads, d});
  const BlockValue v = b.reshape(b.linear("wv", normed, s.kv_heads * d), {s.batch, s.seq, s.kv_heads, d});
  if (s.qk_norm) {
    q = b.rms_norm("q_norm", q);
    k = b.rms_norm("k_norm", k);
  }
  if (s.turns_first) {
    q = rotate(b, q, s);
    k = rotate(b, k, s);
  } else {
    const auto turned = b.rotary(q, k, {b.input("cos"), b.input("sin")});
    q = turned.query;
    k = turned.key;
  }
  const BlockValue keys = s.repeat_kv ? to_all_heads(b, k, s) : k;
  const BlockValue values = s.repeat_kv ? to_all_heads(b, v, s) : v;
  const BlockValue attended = b.attention(q, keys, values, {});
  const BlockValue y = b.add(x, b.linear("wo", attended, s.hidden));
  const BlockValue middle = b.rms_norm("ffn_norm", y);
  const BlockValue gate = b.silu(b.linear("w1", middle, s.ffn));
  const BlockValue up = b.linear("w3", middle, s.ffn);
  b.output("hidden", b.add(y, b.linear("w2", b.mul(gate, up), s.hidden)));
  return b;
}

// The block of GPT-2 and ViT.
BlockBuilder mlp_block(const ModelAssembler& model, const TracedSizes& s, bool causal) {
  BlockBuilder b = model.block("layer", "MlpBlock");
  for (const char* name : {"norm1", "norm2"}) b.declare(name, "LayerNorm");
  for (const char* name : {"qkv", "proj", "fc1", "fc2"}) b.declare(name, "Linear");
  const BlockValue x = b.input("hidden");
  const BlockValue packed = b.linear("qkv", b.layer_norm("norm1", x), 3 * s.hidden, {.bias = true});
  // view(batch, seq, 3, heads, dim).permute(2, 0, 3, 1, 4).unbind(0); attention's own transpose is undone here.
  const BlockValue view = b.reshape(packed, {s.batch, s.seq, 3, s.heads, s.head_dim()});
  const auto parts = b.split(b.transpose(b.transpose(view, 0, 2), 1, 2), 3, 0);
  std::vector<BlockValue> qkv;
  for (const BlockValue part : parts) qkv.push_back(b.reshape(part, {s.batch, s.seq, s.heads, s.head_dim()}));
  const BlockValue attended = b.attention(qkv[0], qkv[1], qkv[2], {.causal = causal, .dropout = s.dropout});
  const BlockValue y = b.add(x, b.dropout("", b.linear("proj", attended, s.hidden, {.bias = true}), s.dropout));
  const BlockValue wide = b.gelu(b.linear("fc1", b.layer_norm("norm2", y), s.ffn, {.bias = true}), false);
  b.output("hidden", b.add(y, b.dropout("", b.linear("fc2", wide, s.hidden, {.bias = true}), s.dropout)));
  return b;
}

void add_loss(ModelAssembler& model) {
  BlockBuilder loss = model.block("loss", "Loss");
  loss.output("loss", loss.cross_entropy(loss.input("logits"), loss.input("labels"), false));
  model.call("", std::move(loss), false, true);
}

void add_blocks(ModelAssembler& model, const TracedSizes& sizes, const auto& block) {
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    model.call("blocks." + std::to_string(layer), block(), true);
  }
}

Model finish(ModelAssembler& model, const TracedSizes& sizes) {
  for (const std::string& prefix : sizes.frozen) model.freeze(prefix);
  return model.finish("loss");
}

}  // namespace

Model traced_llama(const TracedSizes& s) {
  ModelAssembler model("traced Llama", s.dtype);
  model.input("ids", {s.batch, s.seq}, Dtype::Int64);
  model.input("labels", {s.batch, s.seq}, Dtype::Int64);
  model.input("cos", {1, s.seq, s.head_dim()}, std::nullopt, false);
  model.input("sin", {1, s.seq, s.head_dim()}, std::nullopt, false);
  BlockBuilder embed = model.block("embedding", "Embedding");
  embed.output("hidden", embed.embedding("", embed.input("ids"), s.vocabulary, s.hidden));
  model.call("embed", std::move(embed));
  add_blocks(model, s, [&] { return llama_block(model, s); });
  BlockBuilder norm = model.block("norm", "RMSNorm");
  norm.output("hidden", norm.rms_norm("", norm.input("hidden")));
  model.call("norm", std::move(norm));
  BlockBuilder head = model.block("head", "Linear");
  head.output("logits", head.linear("", head.input("hidden"), s.vocabulary));
  model.call("head", std::move(head));
  add_loss(model);
  return finish(model, s);
}

Model traced_gpt2(const TracedSizes& s) {
  ModelAssembler model("traced GPT-2", s.dtype);
  model.input("ids", {s.batch, s.seq}, Dtype::Int64);
  model.input("labels", {s.batch, s.seq}, Dtype::Int64);
  BlockBuilder embed = model.block("embeddings", "Gpt2");
  const BlockValue tokens = embed.embedding("embed", embed.input("ids"), s.vocabulary, s.hidden);
  const BlockValue positions = embed.embedding("position", embed.positions({s.seq}), s.seq, s.hidden);
  embed.output("hidden", embed.add(tokens, positions));
  model.call("", std::move(embed));
  add_blocks(model, s, [&] { return mlp_block(model, s, true); });
  BlockBuilder norm = model.block("norm", "LayerNorm");
  norm.output("hidden", norm.layer_norm("", norm.input("hidden")));
  model.call("norm", std::move(norm));
  BlockBuilder head = model.block("head", "Linear");
  head.output("logits", head.linear("", head.input("hidden"), s.vocabulary));
  model.call("head", std::move(head));
  model.tie("head.weight", "embed.weight");
  add_loss(model);
  return finish(model, s);
}

Model traced_vit(const TracedSizes& s) {
  ModelAssembler model("traced ViT", s.dtype);
  model.input("patches", {s.batch, s.seq, 3 * s.patch * s.patch}, std::nullopt);
  model.input("labels", {s.batch}, Dtype::Int64);
  BlockBuilder embed = model.block("embeddings", "Vit");
  const BlockValue patches = embed.linear("patch", embed.input("patches"), s.hidden, {.bias = true});
  embed.output("hidden", embed.add(patches, embed.parameter("position", {1, s.seq, s.hidden})));
  model.call("", std::move(embed));
  add_blocks(model, s, [&] { return mlp_block(model, s, false); });
  BlockBuilder norm = model.block("norm", "LayerNorm");
  norm.output("hidden", norm.layer_norm("", norm.input("hidden")));
  model.call("norm", std::move(norm));
  // The mean is the root's own; it is written into the head, because a second call of the root would be a second pass.
  BlockBuilder head = model.block("head", "Linear");
  head.output("logits", head.linear("", head.mean(head.input("hidden"), 1, false), s.vocabulary, {.bias = true}));
  model.call("head", std::move(head));
  add_loss(model);
  return finish(model, s);
}

}  // namespace fsdp

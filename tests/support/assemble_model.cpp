#include "tests/support/assemble_model.h"

#include <cstdlib>
#include <iostream>

namespace fsdp {

namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

ModelAssembler::ModelAssembler(std::string name, Dtype dtype) {
  model_.name = std::move(name);
  model_.modules.push_back({.name = "", .class_name = "Model"});
  (void)dtype;
}

void ModelAssembler::input(const std::string& name, Shape shape, std::optional<Dtype> dtype, bool loaded) {
  if (loaded) model_.inputs.push_back(static_cast<int>(model_.values.size()));
  model_.values.push_back({name, std::move(shape), dtype});
}

BlockBuilder ModelAssembler::block(const std::string& kind, const std::string& class_name) const {
  // Later values shadow earlier ones of the same name.
  std::vector<Value> available;
  for (const Value& value : model_.values) {
    std::erase_if(available, [&](const Value& other) { return other.name == value.name; });
    available.push_back(value);
  }
  return BlockBuilder(kind, class_name, available);
}

int ModelAssembler::value_of(const std::string& name) const {
  for (std::size_t v = model_.values.size(); v-- > 0;) {
    if (model_.values[v].name == name) return static_cast<int>(v);
  }
  std::cerr << "no value " << name << "\n";
  std::abort();
}

int ModelAssembler::module_at(const std::string& name, const std::string& class_name) {
  for (std::size_t m = 0; m < model_.modules.size(); ++m) {
    if (model_.modules[m].name == name) return static_cast<int>(m);
  }
  const auto dot = name.rfind('.');
  const int parent = dot == std::string::npos ? 0 : module_at(name.substr(0, dot), "ModuleList");
  const int module = static_cast<int>(model_.modules.size());
  model_.modules.push_back({.name = name, .class_name = class_name, .parent = parent});
  model_.modules[at(parent)].children.push_back(module);
  return module;
}

void ModelAssembler::call(const std::string& name, BlockBuilder builder, bool repeated, bool outside) {
  auto finished = builder.finish();
  if (!finished) {
    for (const Error& error : finished.error()) std::cerr << to_string(error) << "\n";
    std::abort();
  }
  BlockDefinition& made = *finished;
  Call call{.repeated = repeated};
  call.module = outside ? -1 : 0;
  for (const BlockModule& module : made.block.modules) {
    std::string full = name;
    if (!module.name.empty()) full += (name.empty() ? "" : ".") + module.name;
    call.modules.push_back(outside ? -1 : module_at(full, module.class_name));
  }
  if (!outside) call.module = call.modules.front();
  for (std::size_t p = 0; p < made.parameters.size(); ++p) {
    const int module = call.modules[at(made.parameters[p].module)];
    const int parameter = static_cast<int>(model_.parameters.size());
    const std::string full = (name.empty() ? "" : name + ".") + made.parameters[p].name;
    model_.parameters.push_back({.name = full, .shape = made.block.parameters[p], .module = module});
    model_.modules[at(module)].parameters.push_back(parameter);
    call.parameters.push_back(parameter);
  }
  for (const std::string& input : made.input_names) call.inputs.push_back(value_of(input));
  for (std::size_t o = 0; o < made.output_names.size(); ++o) {
    const Value& inside = made.block.values[at(made.block.outputs[o])];
    call.outputs.push_back(static_cast<int>(model_.values.size()));
    model_.values.push_back({made.output_names[o], inside.shape, inside.dtype});
  }
  if (model_.blocks.empty() || model_.blocks.back() != made.block) model_.blocks.push_back(made.block);
  call.block = static_cast<int>(model_.blocks.size()) - 1;
  model_.calls.push_back(std::move(call));
}

Model ModelAssembler::finish(const std::string& loss) {
  model_.loss = value_of(loss);
  derive_gradient_flow(model_);
  return std::move(model_);
}

Model traced_llama() {
  constexpr std::int64_t kBatch = 2, kSeq = 256, kHidden = 256, kHeads = 4, kKvHeads = 2, kDim = 64, kFfn = 704;
  constexpr std::int64_t kVocabulary = 4000;
  ModelAssembler model("traced Llama", Dtype::Float32);
  model.input("ids", {kBatch, kSeq}, Dtype::Int64);
  model.input("labels", {kBatch, kSeq}, Dtype::Int64);
  model.input("cos", {1, kSeq, kDim}, std::nullopt, false);
  model.input("sin", {1, kSeq, kDim}, std::nullopt, false);
  BlockBuilder embed = model.block("embedding", "Embedding");
  embed.output("hidden", embed.embedding("", embed.input("ids"), kVocabulary, kHidden));
  model.call("embed", std::move(embed));
  for (int layer = 0; layer < 3; ++layer) {
    BlockBuilder b = model.block("layer", "LlamaBlock");
    for (const char* name : {"attention_norm", "ffn_norm"}) b.declare(name, "RMSNorm");
    for (const char* name : {"wq", "wk", "wv", "wo", "w1", "w3", "w2"}) b.declare(name, "Linear");
    const BlockValue x = b.input("hidden");
    const BlockValue normed = b.rms_norm("attention_norm", x);
    const BlockValue q = b.reshape(b.linear("wq", normed, kHeads * kDim), {kBatch, kSeq, kHeads, kDim});
    const BlockValue k = b.reshape(b.linear("wk", normed, kKvHeads * kDim), {kBatch, kSeq, kKvHeads, kDim});
    const BlockValue v = b.reshape(b.linear("wv", normed, kKvHeads * kDim), {kBatch, kSeq, kKvHeads, kDim});
    const auto turned = b.rotary(q, k, {b.input("cos"), b.input("sin")});
    const BlockValue attended = b.attention(turned.query, turned.key, v, {});
    const BlockValue y = b.add(x, b.linear("wo", attended, kHidden));
    const BlockValue middle = b.rms_norm("ffn_norm", y);
    const BlockValue gate = b.silu(b.linear("w1", middle, kFfn));
    const BlockValue up = b.linear("w3", middle, kFfn);
    b.output("hidden", b.add(y, b.linear("w2", b.mul(gate, up), kHidden)));
    model.call("blocks." + std::to_string(layer), std::move(b), true);
  }
  BlockBuilder norm = model.block("norm", "RMSNorm");
  norm.output("hidden", norm.rms_norm("", norm.input("hidden")));
  model.call("norm", std::move(norm));
  BlockBuilder head = model.block("head", "Linear");
  head.output("logits", head.linear("", head.input("hidden"), kVocabulary));
  model.call("head", std::move(head));
  BlockBuilder loss = model.block("loss", "Loss");
  loss.output("loss", loss.cross_entropy(loss.input("logits"), loss.input("labels"), false));
  model.call("", std::move(loss), false, true);
  return model.finish("loss");
}

}  // namespace fsdp

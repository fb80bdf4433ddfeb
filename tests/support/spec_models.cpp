#include "tests/support/spec_models.h"

#include <cstdio>
#include <cstdlib>

namespace fsdp {

namespace {

template <class T>
T value_or_exit(Result<T> result) {
  if (result) return *std::move(result);
  for (const Error& error : result.error()) {
    std::fprintf(stderr, "%s: %s %s\n", error.where.c_str(), error.what.c_str(), error.hint.c_str());
  }
  std::exit(1);
}

template <class T>
const T* find_named(const std::vector<T>& items, std::string_view name) {
  for (const T& item : items) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

}  // namespace

Model model_of(const std::string& file, const Workload& workload) {
  return value_or_exit(build_model(value_or_exit(read_model_spec("model_specs/" + file)), workload));
}

std::int64_t elements_below(const Model& model, std::string_view prefix) {
  return elements_where(model, [&](const Parameter& parameter) { return parameter.name.starts_with(prefix); });
}

const Parameter* find_parameter(const Model& model, std::string_view name) {
  return find_named(model.parameters, name);
}
const Module* find_module(const Model& model, std::string_view name) {
  return find_named(model.modules, name);
}
const Buffer* find_buffer(const Model& model, std::string_view name) {
  return find_named(model.buffers, name);
}

std::vector<PlacedOp> ops_of(const Model& model, std::string_view module) {
  std::vector<PlacedOp> found;
  for (const Call& call : model.calls) {
    const Block& block = model.blocks[call.block];
    for (const Op& op : block.ops) {
      const int owner = call.modules[op.module];
      if (model.modules[owner].name != module) continue;
      PlacedOp placed{.module = std::string(module), .kind = op.kind, .attributes = op.attributes};
      for (const int id : op.inputs) placed.inputs.push_back(block.values[id].shape);
      for (const int id : op.outputs) placed.outputs.push_back(block.values[id].shape);
      found.push_back(std::move(placed));
    }
  }
  return found;
}

PlacedOp op_of(const Model& model, std::string_view module, OpKind kind) {
  for (PlacedOp& op : ops_of(model, module)) {
    if (op.kind == kind) return std::move(op);
  }
  std::fprintf(stderr, "No %s runs in %s.\n", std::string(name_of(kind)).c_str(), std::string(module).c_str());
  std::exit(1);
}

}  // namespace fsdp

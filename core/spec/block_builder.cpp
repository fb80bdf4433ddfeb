#include "core/spec/block_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/nearest.h"

namespace fsdp {

BlockBuilder::BlockBuilder(std::string kind, std::string class_name, std::vector<Value> available)
    : available_(std::move(available)) {
  definition_.block.kind = std::move(kind);
  add_module("", class_name, -1, true);
}

// ---- Modules

std::string BlockBuilder::full_name(std::string_view name) const {
  const std::string& scope = definition_.block.modules[current_].name;
  if (name.empty()) return scope;
  return scope.empty() ? std::string(name) : fmt::format("{}.{}", scope, name);
}

int BlockBuilder::find_module(std::string_view full_name) const {
  const auto found = module_ids_.find(full_name);
  return found == module_ids_.end() ? -1 : found->second;
}

int BlockBuilder::add_module(std::string name, std::string_view class_name, int parent, bool called) {
  const int id = static_cast<int>(definition_.block.modules.size());
  module_ids_.emplace(name, id);
  definition_.block.modules.push_back(
      BlockModule{.name = std::move(name), .class_name = std::string(class_name), .parent = parent, .called = called});
  return id;
}

namespace {

bool is_container(std::string_view class_name) {
  return class_name == "ModuleList" || class_name == "ModuleDict";
}

}  // namespace

int BlockBuilder::make_module(std::string_view name, std::string_view class_name, bool called) {
  std::string full = full_name(name);
  if (const int found = find_module(full); found >= 0) {
    // A module that was made as a parent of others also has its own forward.
    BlockModule& known = definition_.block.modules[found];
    if (found > 0 && known.class_name.empty() && !known.called) {
      known.class_name = class_name;
      known.called = called && !is_container(class_name);
    }
    return found;
  }
  // Undeclared parents are plain containers; the model names their class.
  int parent = 0;
  for (std::size_t dot = full.find('.'); dot != std::string::npos; dot = full.find('.', dot + 1)) {
    std::string prefix = full.substr(0, dot);
    const int found = find_module(prefix);
    parent = found >= 0 ? found : add_module(std::move(prefix), {}, parent, false);
  }
  return add_module(std::move(full), class_name, parent, called && !is_container(class_name));
}

BlockBuilder::Scope BlockBuilder::enter(std::string_view name, std::string_view class_name) {
  const int previous = current_;
  current_ = make_module(name, class_name, true);
  return Scope(*this, previous);
}

void BlockBuilder::leave(int previous) {
  end_locals();
  current_ = previous;
}

// ---- Local variables

BlockValue BlockBuilder::local(std::string_view variable, BlockValue value) {
  Block& block = definition_.block;
  const auto [place, is_new] = locals_.try_emplace({current_, std::string(variable)}, value.id);
  if (!is_new) {
    block.locals.push_back({place->second, current_, static_cast<int>(block.ops.size()) - 1});
    place->second = value.id;
  }
  return value;
}

// The forward of the scope returns.
void BlockBuilder::end_locals() {
  Block& block = definition_.block;
  const auto first = locals_.lower_bound({current_, std::string()});
  auto last = first;
  for (; last != locals_.end() && last->first.first == current_; ++last) {
    block.locals.push_back({last->second, current_, static_cast<int>(block.ops.size()) - 1});
  }
  locals_.erase(first, last);
}

// The forward of a module is one range of ops that run in it or below.
bool BlockBuilder::hold(std::string_view module, BlockValue value, int from, int next_value) {
  Block& block = definition_.block;
  const int owner = find_module(full_name(module));
  const auto runs_in_owner = [&](int op) {
    int m = block.ops[op].module;
    while (m > owner) m = block.modules[m].parent;
    return m == owner;
  };
  if (owner < 0 || !block.modules[owner].called || !runs_in_owner(from)) return false;
  int until = from;
  while (until + 1 < num_ops() && until != next_value && runs_in_owner(until + 1)) ++until;
  block.locals.push_back({value.id, owner, until});
  return true;
}

void BlockBuilder::declare(std::string_view name, std::string_view class_name, bool called) {
  make_module(name, class_name, called);
}

// ---- Values

BlockValue BlockBuilder::add_value(std::string name, Shape shape, std::optional<Dtype> dtype, bool broken) {
  broken_values_.push_back(broken);
  definition_.block.values.push_back(Value{.name = std::move(name), .shape = std::move(shape), .dtype = dtype});
  return BlockValue{static_cast<int>(definition_.block.values.size()) - 1};
}

std::optional<BlockValue> BlockBuilder::optional_input(std::string_view name) {
  for (const int id : inputs_) {
    if (definition_.block.values[id].name == name) return BlockValue{id};
  }
  const auto found =
      std::find_if(available_.begin(), available_.end(), [&](const Value& value) { return value.name == name; });
  if (found == available_.end()) {
    definition_.absent_inputs.emplace_back(name);
    return std::nullopt;
  }
  const BlockValue value = add_value(found->name, found->shape, found->dtype);
  inputs_.push_back(value.id);
  definition_.input_names.push_back(found->name);
  return value;
}

BlockValue BlockBuilder::input(std::string_view name) {
  if (const auto value = optional_input(name)) return *value;
  std::vector<std::string_view> names;
  for (const Value& value : available_) names.push_back(value.name);
  fail(fmt::format("It needs a value \"{}\", which no module before it produces.", name), suggest_name(name, names));
  return add_value(std::string(name), {1, 1}, std::nullopt, true);
}

void BlockBuilder::output(std::string_view name, BlockValue value) {
  definition_.block.outputs.push_back(value.id);
  definition_.output_names.emplace_back(name);
}

void BlockBuilder::named_output(std::string_view name, BlockValue value) {
  definition_.named.emplace_back(static_cast<int>(definition_.block.outputs.size()), current_);
  output(name, value);
}

const Shape& BlockBuilder::shape(BlockValue value) const {
  return definition_.block.values[value.id].shape;
}

std::int64_t BlockBuilder::size(BlockValue value, int dim) const {
  const Shape& sizes = shape(value);
  const int rank = static_cast<int>(sizes.size());
  const int index = dim < 0 ? dim + rank : dim;
  return index < 0 || index >= rank ? 1 : sizes[index];
}

// ---- Ops

int BlockBuilder::parameter_of(std::string_view module, std::string_view name, const Shape& shape, bool fixed) {
  const std::string owner = full_name(module);
  const std::string full = owner.empty() ? std::string(name) : fmt::format("{}.{}", owner, name);
  if (const auto known = parameter_ids_.find(full); known != parameter_ids_.end()) {
    const Shape& used_as = definition_.block.parameters[known->second];
    if (used_as != shape) {
      fail(fmt::format("The parameter \"{}\" is used as {} and as {}.", full, to_string(used_as), to_string(shape)));
    }
    return known->second;
  }
  const bool sizes_are_positive = std::all_of(shape.begin(), shape.end(), [](std::int64_t size) { return size >= 1; });
  const bool is_good = sizes_are_positive && checked_num_elements(shape);
  if (!is_good) {
    fail(fmt::format("The parameter \"{}\" would be {}.", full, to_string(shape)),
         "Sizes start at 1, and a tensor has at most 2^53 elements.");
  }
  broken_parameters_.push_back(!is_good);
  const int module_id = std::max(find_module(owner), 0);
  const int id = static_cast<int>(definition_.parameters.size());
  parameter_ids_.emplace(full, id);
  definition_.parameters.push_back(BlockParameter{.name = full, .module = module_id, .fixed = fixed});
  definition_.block.parameters.push_back(shape);
  return id;
}

namespace {

/// The dtype of an output: ids and masks keep their own, everything else follows the activations.
std::optional<Dtype> output_dtype(const BlockBuilder::OpRequest& request, std::size_t output,
                                  const std::vector<Value>& values) {
  switch (request.kind) {
    case OpKind::Cast:
    case OpKind::Constant:
      return request.attributes.dtype;
    case OpKind::RotaryTable:
      return request.attributes.wide ? std::optional(Dtype::Float32) : std::nullopt;
    case OpKind::DecayRate:
    case OpKind::StateSpace:
      return Dtype::Float32;
    case OpKind::Router:
      if (output == 0 && (request.attributes.sigmoid || request.attributes.wide)) return Dtype::Float32;
      return output == 1 ? std::optional(Dtype::Int64) : std::nullopt;
    // Products and fused norms accept only the dtype of their parameters.
    case OpKind::Linear:
    case OpKind::Linear4bit:
    case OpKind::Conv1d:
    case OpKind::Conv2d:
    case OpKind::LayerNorm:
    case OpKind::GroupNorm:
    case OpKind::Embedding:
    case OpKind::Parameter:
    case OpKind::CrossEntropy:
    case OpKind::LinearCrossEntropy:
    case OpKind::MseLoss:
      return std::nullopt;
    default:
      return request.inputs.empty() ? std::nullopt : values[request.inputs[0].id].dtype;
  }
}

}  // namespace

bool BlockBuilder::is_broken(const OpRequest& request) const {
  return std::any_of(request.inputs.begin(), request.inputs.end(),
                     [&](BlockValue input) { return broken_values_[input.id]; }) ||
         std::any_of(request.parameters.begin(), request.parameters.end(),
                     [&](int parameter) { return broken_parameters_[parameter]; });
}

Result<std::vector<Shape>> BlockBuilder::output_shapes(const OpRequest& request) const {
  std::vector<Shape> inputs;
  std::vector<Shape> parameters;
  for (const BlockValue input : request.inputs) inputs.push_back(shape(input));
  for (const int parameter : request.parameters) {
    parameters.push_back(definition_.block.parameters[parameter]);
  }
  return infer_output_shapes(request.kind, request.attributes,
                             OpShapes{.inputs = inputs,
                                      .parameters = parameters,
                                      .requested = request.requested,
                                      .num_outputs = request.num_outputs});
}

std::vector<BlockValue> BlockBuilder::op(const OpRequest& request) {
  Block& block = definition_.block;
  const int module = find_module(full_name(request.module));
  if (module < 0) fail(fmt::format("An op runs in \"{}\", which is not a module.", full_name(request.module)));
  Op op;
  op.kind = request.kind;
  op.module = std::max(module, 0);
  op.parameters = request.parameters;
  op.attributes = request.attributes;
  for (const BlockValue input : request.inputs) op.inputs.push_back(input.id);

  const std::string base = block.modules[op.module].name;
  bool broken = is_broken(request);
  Result<std::vector<Shape>> shapes = std::vector<Shape>{};
  if (!broken) {
    shapes = output_shapes(request);
    broken = !shapes;
    if (broken) {
      const Error& error = shapes.error().front();
      fail(fmt::format("The op {} in \"{}\" does not work: {}", error.where, base, error.what), error.hint);
    }
  }
  // Enough placeholders for any kind: only a split gives more than two values.
  if (broken) shapes = std::vector<Shape>(static_cast<std::size_t>(std::max(request.num_outputs, 2)), Shape{1, 1});

  std::vector<BlockValue> outputs;
  for (std::size_t i = 0; i < shapes->size(); ++i) {
    std::string name = i < request.names.size() ? request.names[i] : std::string(name_of(request.kind));
    if (i >= request.names.size() && !base.empty()) name = fmt::format("{}.{}", base, name);
    outputs.push_back(
        add_value(std::move(name), std::move((*shapes)[i]), output_dtype(request, i, block.values), broken));
    op.outputs.push_back(outputs.back().id);
  }
  block.ops.push_back(std::move(op));
  return outputs;
}

void BlockBuilder::fail(std::string what, std::string hint) {
  // One wrong size makes many ops fail; the first few are enough.
  if (errors_.size() < 5) errors_.push_back(Error{.where = {}, .what = std::move(what), .hint = std::move(hint)});
}

void BlockBuilder::fail_by_size(std::string what, std::string hint) {
  if (errors_.size() < 5) errors_.push_back(Error{std::string(kInSizes), std::move(what), std::move(hint)});
}

Result<BlockDefinition> BlockBuilder::finish() {
  if (!errors_.empty()) return tl::unexpected(std::move(errors_));
  end_locals();
  Block& block = definition_.block;
  // Moves inputs to the front, in the order of the requests; all else stays in order.
  std::vector<int> position(block.values.size(), -1);
  int next = 0;
  for (const int id : inputs_) position[id] = next++;
  for (int& p : position) {
    if (p < 0) p = next++;
  }
  std::vector<Value> values(block.values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[position[i]] = std::move(block.values[i]);
  }
  block.values = std::move(values);
  block.num_inputs = static_cast<int>(inputs_.size());
  const auto move_ids = [&](std::vector<int>& ids) {
    for (int& id : ids) id = position[id];
  };
  for (Op& op : block.ops) {
    move_ids(op.inputs);
    move_ids(op.outputs);
  }
  move_ids(block.outputs);
  for (LocalVariable& local : block.locals) local.value = position[local.value];
  return std::move(definition_);
}

}  // namespace fsdp

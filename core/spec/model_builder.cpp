// Builds a Model from a spec and a workload.
//
// Evaluates all numbers first, so that every bad one is reported. Then each entry becomes one block, for the shapes of
// its inputs; each repetition only binds that block to its own modules and parameters. A repetition with inputs of
// other shapes, or with other options in turn, gets a block of its own. Equal blocks are merged. At the end it ties
// parameters, sorts everything into PyTorch's order of registration, and derives the gradient flow.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/nearest.h"
#include "core/model/op_shapes.h"
#include "core/plan/loss_table.h"
#include "core/spec/adapters.h"
#include "core/spec/block_builder.h"
#include "core/spec/block_kinds.h"
#include "core/spec/captured_model.h"
#include "core/spec/dimensions.h"
#include "core/spec/float8_layers.h"
#include "core/spec/liger_parts.h"
#include "core/spec/model_spec.h"
#include "core/spec/module_tree.h"
#include "core/spec/other_specs.h"
#include "core/spec/packed_rows.h"
#include "core/spec/quantized_base.h"
#include "core/spec/spec_entry.h"
#include "core/spec/spec_ops.h"
#include "core/spec/trainable_patterns.h"

namespace fsdp {
namespace {

constexpr std::size_t kMostTensors = 500'000;

/// A block of one entry, with the conditions for its reuse.
struct WrittenBlock {
  std::size_t variation = 0;
  BlockDefinition definition;
  int block = 0;  ///< In `Model::blocks`.
};

class Builder {
 public:
  Builder(const ModelSpec& spec, const Workload& workload) : spec_(spec), workload_(workload), tree_(model_) {}

  Result<Model> run();

 private:
  void add_inputs(const DimensionValues& dimensions);
  void add_classes();
  void add_entry(const SpecEntry& entry);
  std::vector<Value> available_to(const SpecModule& module) const;
  bool fits(const WrittenBlock& written, const SpecModule& module) const;
  Result<WrittenBlock> write_block(const SpecEntry& entry, std::size_t variation);
  int share_block(const Block& block);
  void mark_hidden_matrices(const Block& block, const Call& call);
  void bind(const SpecEntry& entry, const WrittenBlock& written, const std::string& base);
  bool is_loss_alone(const SpecEntry& entry) const;
  bool runs_after_root(const SpecModule& module) const { return module.after_root || &module == moved_; }
  void place_loss(const std::vector<SpecEntry>& entries);
  void cast_logits(const SpecModule& loss);
  bool ends_with_head(const std::vector<SpecEntry>& entries) const;
  void add_fused_head(const SpecEntry& head, const SpecEntry& loss);
  void check_after_root(const std::vector<SpecEntry>& entries);
  void bind_after_root(const SpecModule& module, const WrittenBlock& written);
  void check_unread();
  void add_outputs(const SpecModule& module, const WrittenBlock& written, const std::string& base, Call& call);
  void add_to_stack(const SpecModule& module, int call);
  void finish(const DimensionValues& dimensions, const Recipe& recipe);
  void set_trainable(const Recipe& recipe);

  const ModelSpec& spec_;
  /// The place of too large sizes: the workload if it has them, otherwise the file.
  std::string where_of_sizes(const std::string& where) const {
    std::vector<std::string> sizes;
    for (const Dimension& size : workload_.dimensions) sizes.push_back(fmt::format("{} {}", size.name, size.value));
    return sizes.empty() ? where : fmt::format("{}", fmt::join(sizes, ", "));
  }

  const Workload& workload_;
  Model model_;
  ModuleTree tree_;
  std::map<std::string, int, std::less<>> values_;  ///< The current value of a name.
  std::vector<std::string> call_where_;             ///< [num_calls] The entry.
  const SpecModule* loss_ = nullptr;                ///< The last entry if it is the loss and nothing else;
  const SpecModule* moved_ = nullptr;               ///< the same if the workload runs it after the root.
  std::int64_t num_value_elements_ = 0;
  std::int64_t num_parameter_elements_ = 0;
  FoundTargets adapters_;
  LigerParts liger_;
  Float8Layers float8_;
  std::optional<PackedRow> row_;
  Errors errors_;
};

/// The name of the model's value inside the entry's block, and the reverse.
const std::string& outside_name(const std::vector<SpecRename>& renames, const std::string& inside) {
  const auto found = std::ranges::find(renames, inside, &SpecRename::inside);
  return found == renames.end() ? inside : found->outside;
}

void Builder::add_inputs(const DimensionValues& dimensions) {
  for (const SpecInput& input : spec_.inputs) {
    Value value{.name = input.name, .shape = {}, .dtype = input.dtype};
    bool good = true;
    for (const SpecNumber& size : input.shape) {
      const auto evaluated = dimensions.integer(size, 1);
      const bool is_new =
          !evaluated && std::find(errors_.begin(), errors_.end(), evaluated.error().front()) == errors_.end();
      if (is_new) append(errors_, evaluated.error());
      good = good && evaluated.has_value();
      value.shape.push_back(evaluated.value_or(1));
    }
    if (good && !checked_num_elements(value.shape)) {
      errors_.push_back(Error{where_of_sizes(input.where),
                              fmt::format("The input \"{}\" would be {}.", input.name, to_string(value.shape)),
                              "A tensor has at most 2^53 elements."});
    }
    const int id = static_cast<int>(model_.values.size());
    values_.insert_or_assign(input.name, id);
    model_.inputs.push_back(id);
    if (!input.root_argument) model_.inputs_beside_root.push_back(id);
    model_.values.push_back(std::move(value));
  }
}

void Builder::add_classes() {
  for (const SpecClass& entry : spec_.classes) {
    const auto module = tree_.find(entry.module);
    if (module) {
      tree_.describe(*module, entry.class_name, entry.called);
    } else {
      errors_.push_back(tree_.unknown_module(entry.module, entry.where));
    }
  }
}

std::vector<Value> Builder::available_to(const SpecModule& module) const {
  std::vector<Value> available;
  for (const SpecRename& rename : module.inputs) {
    const auto found = values_.find(rename.outside);
    if (found == values_.end()) continue;
    available.push_back(model_.values[found->second]);
    available.back().name = rename.inside;
  }
  for (const auto& [name, id] : values_) {
    const bool is_renamed = std::any_of(module.inputs.begin(), module.inputs.end(),
                                        [&name = name](const SpecRename& rename) { return rename.inside == name; });
    if (is_renamed) continue;
    available.push_back(model_.values[id]);
    available.back().name = name;
  }
  return available;
}

bool Builder::fits(const WrittenBlock& written, const SpecModule& module) const {
  const BlockDefinition& definition = written.definition;
  for (std::size_t i = 0; i < definition.input_names.size(); ++i) {
    const auto found = values_.find(outside_name(module.inputs, definition.input_names[i]));
    if (found == values_.end()) return false;
    const Value& now = model_.values[found->second];
    const Value& then = definition.block.values[i];
    if (now.shape != then.shape || now.dtype != then.dtype) return false;
  }
  return std::none_of(definition.absent_inputs.begin(), definition.absent_inputs.end(),
                      [&](const std::string& name) { return values_.contains(outside_name(module.inputs, name)); });
}

Result<WrittenBlock> Builder::write_block(const SpecEntry& entry, std::size_t variation) {
  const SpecModule& module = *entry.spec;
  for (const SpecRename& rename : module.inputs) {
    if (values_.contains(rename.outside)) continue;
    std::vector<std::string> names;
    for (const auto& [name, id] : values_) names.push_back(name);
    return failure(module.where, fmt::format("Nothing before it produces \"{}\".", rename.outside),
                   suggest_name(rename.outside, names));
  }
  const BlockOptions options(entry.options[variation]);
  std::string class_name = module.class_name;
  if (class_name.empty() && entry.kind != nullptr && entry.kind->class_name != nullptr) {
    class_name = entry.kind->class_name(options);
  }
  BlockBuilder builder(entry.kind == nullptr ? "ops" : std::string(entry.kind->name), class_name, available_to(module));
  builder.pad_rows(workload_.padding_mask);
  builder.attend_without_masks(workload_.attends_without_masks);
  builder.attend_as_titan(workload_.titan_attention);
  builder.decode_as_automodel(workload_.automodel_decoders);
  builder.adapt_in_one_op(workload_.lora_in_one_op);
  // The number of a repetition is no part of a target.
  if (workload_.lora) builder.adapt(*workload_.lora, module.repeated ? module.name + "0" : module.name);
  if (row_) builder.pack(row_->attention, row_->documents);
  if (workload_.quantization) builder.quantize(*workload_.quantization, spec_.dtype);
  if (workload_.liger) builder.use_liger(*workload_.liger);
  if (workload_.float8) builder.use_float8(*workload_.float8, names_of_runs(module));
  entry.kind == nullptr ? write_plain_ops(builder, module, entry.op_options) : entry.kind->build(builder, options);
  adapters_.note(builder);
  liger_.note(builder);
  float8_.note(builder);
  auto definition = builder.finish();
  if (!definition) {
    Errors errors = std::move(definition).error();
    for (Error& error : errors) error.where = error.where == kInSizes ? where_of_sizes(module.where) : module.where;
    return tl::unexpected(std::move(errors));
  }
  for (const SpecRename& rename : module.outputs) {
    const auto& names = definition->output_names;
    if (std::find(names.begin(), names.end(), rename.inside) != names.end()) continue;
    return failure(module.where, fmt::format("The block does not produce \"{}\".", rename.inside),
                   suggest_name(rename.inside, names));
  }
  WrittenBlock written{.variation = variation, .definition = *std::move(definition)};
  if (module.called) written.block = share_block(written.definition.block);
  return written;
}

int Builder::share_block(const Block& block) {
  const auto same = std::find(model_.blocks.begin(), model_.blocks.end(), block);
  if (same != model_.blocks.end()) return static_cast<int>(same - model_.blocks.begin());
  model_.blocks.push_back(block);
  return static_cast<int>(model_.blocks.size()) - 1;
}

void Builder::add_entry(const SpecEntry& entry) {
  const SpecModule& module = *entry.spec;
  std::vector<WrittenBlock> written;
  for (std::int64_t i = module.first; i <= module.last && errors_.empty(); ++i) {
    const std::size_t variation = static_cast<std::size_t>(i - module.first) % entry.options.size();
    auto block = std::find_if(written.begin(), written.end(), [&](const WrittenBlock& candidate) {
      return candidate.variation == variation && fits(candidate, module);
    });
    if (block == written.end()) {
      auto fresh = write_block(entry, variation);
      if (!fresh) {
        append(errors_, fresh.error());
        return;
      }
      written.push_back(*std::move(fresh));
      block = written.end() - 1;
    }
    const std::string base = module.repeated ? fmt::format("{}{}", module.name, i) : module.name;
    if (runs_after_root(module)) {
      bind_after_root(module, *block);
    } else {
      bind(entry, *block, base);
    }
  }
}

// A softcap belongs to the model, not to the loss.
bool Builder::is_loss_alone(const SpecEntry& entry) const {
  const SpecModule& module = *entry.spec;
  if (entry.kind == nullptr || entry.kind->name != "cross_entropy" || !module.name.empty() || !module.called)
    return false;
  return BlockOptions(entry.options.front()).number("softcap") == 0 &&
         outside_name(module.outputs, "loss") == spec_.loss;
}

void Builder::place_loss(const std::vector<SpecEntry>& entries) {
  if (!entries.empty() && is_loss_alone(entries.back())) loss_ = entries.back().spec;
  if (loss_ != nullptr) {
    if (workload_.loss_after_root) moved_ = loss_;
    return;
  }
  const bool is_outside = !entries.empty() && entries.back().spec->after_root;
  if (workload_.loss_after_root && !is_outside) {
    model_.notes.emplace_back("The loss is a part of this model's forward: it does not run after the root's.");
  }
  if (workload_.float_logits) {
    model_.notes.emplace_back("This model does not cast its loss's logits to fp32: its spec sets the casts.");
  }
}

void Builder::cast_logits(const SpecModule& loss) {
  const std::string name = outside_name(loss.inputs, "logits");
  const auto found = values_.find(name);
  if (found == values_.end() || model_.values[found->second].dtype == Dtype::Float32) return;
  Value logits = model_.values[found->second];
  logits.name = name;
  BlockBuilder builder("float_logits", "", {logits});
  builder.output(name, builder.cast(builder.input(name), Dtype::Float32));
  const auto definition = builder.finish();
  Call call{.block = share_block(definition->block), .module = 0, .modules = {0}, .inputs = {found->second}};
  logits.dtype = Dtype::Float32;
  call.outputs.push_back(static_cast<int>(model_.values.size()));
  values_.insert_or_assign(name, call.outputs.front());
  model_.values.push_back(std::move(logits));
  model_.calls.push_back(std::move(call));
  call_where_.push_back(loss.where);
}

// Whether the last two entries are a linear head and the cross entropy of its logits.
bool Builder::ends_with_head(const std::vector<SpecEntry>& entries) const {
  if (entries.size() < 2) return false;
  const SpecEntry& loss = entries.back();
  const SpecEntry& head = entries[entries.size() - 2];
  const bool is_loss = loss.kind != nullptr && loss.kind->name == "cross_entropy" && loss.spec->name.empty() &&
                       loss.spec->called && !loss.spec->after_root &&
                       outside_name(loss.spec->outputs, "loss") == spec_.loss;
  const bool is_head = head.kind != nullptr && head.kind->name == "lm_head" && !head.spec->name.empty() &&
                       head.spec->called && !head.spec->repeated && !head.spec->keep_outputs;
  return is_loss && is_head && outside_name(head.spec->outputs, "logits") == outside_name(loss.spec->inputs, "logits");
}

// The root reads the head's parameters itself, and calls no module for them; or a loss calls it after the root.
void Builder::add_fused_head(const SpecEntry& head, const SpecEntry& loss) {
  const BlockOptions of_head(head.options.front());
  const BlockOptions of_loss(loss.options.front());
  SpecModule module = *loss.spec;
  module.inputs = {{"hidden", outside_name(head.spec->inputs, "hidden")},
                   {"labels", outside_name(loss.spec->inputs, "labels")}};
  BlockBuilder builder("linear_cross_entropy", "", available_to(module));
  const BlockValue hidden = builder.input("hidden");
  const BlockValue labels = builder.input("labels");
  const std::string& name = head.spec->name;
  if (workload_.lora) {
    builder.adapt(*workload_.lora, "");
    if (builder.is_saved(name) || builder.is_adapted(name, true)) {
      builder.fail("The loss reads the head's weight, and adapters or a copy of the head would not run.",
                   "Name other targets, or plan with --loss pytorch.");
    }
    adapters_.note(builder);
  }
  if (of_head.has("scale")) {
    builder.fail("The model scales its logits, and a loss that takes the head has no logits to scale.",
                 "Plan with --loss pytorch.");
  }
  builder.declare(name, head.spec->class_name.empty() ? "Linear" : head.spec->class_name, workload_.loss_calls_head);
  const std::int64_t classes = of_head.integer("vocab_size");
  std::vector<int> parameters = {builder.parameter_of(name, "weight", {classes, builder.size(hidden, -1)})};
  if (of_head.flag("bias")) parameters.push_back(builder.parameter_of(name, "bias", {classes}));
  const OpAttributes attributes{.softcap = of_loss.number("softcap"), .shift = of_loss.flag("shift")};
  builder.output("loss", builder.op({.kind = OpKind::LinearCrossEntropy,
                                     .inputs = {hidden, labels},
                                     .parameters = parameters,
                                     .attributes = attributes})[0]);
  auto definition = builder.finish();
  if (!definition) {
    Errors errors = std::move(definition).error();
    for (Error& error : errors) error.where = error.where == kInSizes ? where_of_sizes(module.where) : module.where;
    return append(errors_, errors);
  }
  const int block = share_block(definition->block);
  const SpecEntry fused{.spec = &module};
  bind(fused, {.definition = *std::move(definition), .block = block}, "");
  if (workload_.loss_calls_head) model_.calls.back().module = model_.calls.back().modules.front() = -1;
}

void Builder::check_after_root(const std::vector<SpecEntry>& entries) {
  if (!entries.empty() && runs_after_root(*entries.front().spec)) {
    errors_.push_back(Error{entries.front().spec->where, "Nothing runs in the root's forward.",
                            "Leave \"after_root\" out of the model's own entries."});
  }
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (runs_after_root(*entries[i].spec) || !runs_after_root(*entries[i - 1].spec)) continue;
    errors_.push_back(Error{entries[i].spec->where, "It comes after an entry that runs after the root's forward.",
                            "Write \"after_root\": true here too, or move that entry to the end."});
  }
}

void Builder::bind_after_root(const SpecModule& module, const WrittenBlock& written) {
  const BlockDefinition& definition = written.definition;
  if (definition.block.modules.size() > 1 || !definition.parameters.empty() || !definition.buffers.empty()) {
    errors_.push_back(Error{module.where, "An entry after the root's forward has no modules, parameters or buffers.",
                            "Leave \"after_root\" out, or keep to ops without them."});
    return;
  }
  Call call{.block = written.block, .module = -1, .modules = {-1}};
  for (const std::string& name : definition.input_names) {
    call.inputs.push_back(values_.find(outside_name(module.inputs, name))->second);
  }
  add_outputs(module, written, "", call);
  model_.calls.push_back(std::move(call));
  call_where_.push_back(module.where);
}

// As Muon's authors choose: weights of linear layers in blocks, and neither embeddings nor the head.
void Builder::mark_hidden_matrices(const Block& block, const Call& call) {
  for (const Op& op : block.ops) {
    if (op.kind != OpKind::Linear) continue;
    for (const int parameter : op.parameters) {
      if (block.parameters[parameter].size() == 2) model_.parameters[call.parameters[parameter]].is_muon = true;
    }
  }
}

void Builder::bind(const SpecEntry& entry, const WrittenBlock& written, const std::string& base) {
  const SpecModule& module = *entry.spec;
  const BlockDefinition& definition = written.definition;
  std::string full;
  const auto below = [&](const std::string& name) -> const std::string& {
    full = base;
    if (!base.empty() && !name.empty()) full += '.';
    return full += name;
  };
  Call call;
  call.block = written.block;
  call.repeated = module.repeated;
  call.modules.reserve(definition.block.modules.size());
  call.parameters.reserve(definition.parameters.size());
  for (const BlockModule& part : definition.block.modules) {
    call.modules.push_back(part.parent < 0 ? tree_.module(below(part.name))
                                           : tree_.module(below(part.name), call.modules[part.parent]));
    // An entry that does not run may be a unit, which stays sharded: a block of a row, or a module by itself.
    const bool is_unit = part.parent < 0 && (module.repeated || base.empty() || base.back() < '0' || base.back() > '9');
    tree_.describe(call.modules.back(), part.class_name, part.called && (module.called || is_unit));
  }
  call.module = call.modules.front();
  for (std::size_t i = 0; i < definition.parameters.size(); ++i) {
    const BlockParameter& parameter = definition.parameters[i];
    const Shape& shape = definition.block.parameters[i];
    const std::size_t before = model_.parameters.size();
    const auto id = tree_.parameter(below(parameter.name), call.modules[parameter.module], shape,
                                    parameter.dtype.value_or(spec_.dtype), parameter.fixed, module.where);
    if (!id) {
      append(errors_, id.error());
      return;
    }
    if (model_.parameters.size() > before) num_parameter_elements_ += num_elements(shape);
    model_.parameters[*id].stands_for = parameter.stands_for;
    model_.parameters[*id].gathered_in_float8 = parameter.gathered_in_float8;
    call.parameters.push_back(*id);
  }
  if (module.repeated) mark_hidden_matrices(definition.block, call);
  for (Buffer buffer : definition.buffers) {
    buffer.name = below(buffer.name);
    tree_.buffer(std::move(buffer));
  }
  for (const Value& value : definition.block.values) {
    if (num_value_elements_ <= kMostElements) num_value_elements_ += num_elements(value.shape);
  }
  const std::size_t num_tensors = model_.parameters.size() + model_.modules.size() + model_.calls.size();
  if (num_parameter_elements_ > kMostElements || num_value_elements_ > kMostElements || num_tensors > kMostTensors) {
    errors_.push_back(Error{num_tensors > kMostTensors ? module.where : where_of_sizes(module.where),
                            num_tensors > kMostTensors
                                ? "The model has more than half a million modules and parameters."
                                : "The model has more than 2^53 elements in all.",
                            "Take smaller sizes."});
    return;
  }
  if (!module.called) return;
  for (const std::string& name : definition.input_names) {
    call.inputs.push_back(values_.find(outside_name(module.inputs, name))->second);
  }
  add_outputs(module, written, base, call);
  model_.calls.push_back(std::move(call));
  call_where_.push_back(module.where);
  if (module.repeated) add_to_stack(module, static_cast<int>(model_.calls.size()) - 1);
}

void Builder::add_outputs(const SpecModule& module, const WrittenBlock& written, const std::string& base, Call& call) {
  const BlockDefinition& definition = written.definition;
  for (std::size_t i = 0; i < definition.output_names.size(); ++i) {
    const std::string& outside = outside_name(module.outputs, definition.output_names[i]);
    const Value& inside = definition.block.values[definition.block.outputs[i]];
    const int id = static_cast<int>(model_.values.size());
    model_.values.push_back(Value{.name = base.empty() ? outside : fmt::format("{}.{}", base, outside),
                                  .shape = inside.shape,
                                  .dtype = inside.dtype});
    values_.insert_or_assign(outside, id);
    call.outputs.push_back(id);
    const bool is_cached = is_kv_cache(definition.block, definition.block.outputs[i]);
    if (module.keep_outputs || is_cached) model_.held.push_back({.value = id, .if_cached = is_cached});
  }
  for (const auto& [output, scope] : definition.named) {
    model_.named.push_back({call.outputs[output], call.modules[scope]});
  }
}

void Builder::add_to_stack(const SpecModule& module, int call) {
  // The list above them names both "model.layers." and "encoder.layers.encoder_layer_".
  const std::string name = module.name.substr(0, std::min(module.name.rfind('.'), module.name.size()));
  if (model_.stacks.empty() || model_.stacks.back().name != name) {
    const Module& called = model_.modules[model_.calls[call].module];
    model_.stacks.push_back(Stack{.name = name, .class_name = called.class_name, .calls = {}});
  }
  model_.stacks.back().calls.push_back(call);
}

// Errors for values that an entry overwrites before anything reads them: a duplicate entry.
void Builder::check_unread() {
  std::vector<bool> counts(model_.values.size(), false);
  for (const Call& call : model_.calls) {
    for (const int value : call.inputs) counts[value] = true;
  }
  for (const HeldValue& held : model_.held) counts[held.value] = true;
  for (const auto& [name, value] : values_) counts[value] = true;
  for (std::size_t c = 0; c < model_.calls.size(); ++c) {
    const std::vector<int>& outputs = model_.calls[c].outputs;
    if (std::any_of(outputs.begin(), outputs.end(), [&](int value) { return counts[value]; })) continue;
    const std::string& name = model_.values[outputs.front()].name;
    errors_.push_back(Error{call_where_[c],
                            fmt::format("Nothing reads \"{}\" before a later entry overwrites it.", name),
                            "Leave one of the two entries out, or give their outputs different names."});
  }
}

void Builder::set_trainable(const Recipe& recipe) {
  const auto is_fixed = [&](std::size_t parameter) { return tree_.is_fixed(parameter); };
  append(errors_, apply_patterns(spec_.trainable, spec_.frozen, is_fixed, model_));
  append(errors_, apply_patterns(recipe.trainable, recipe.frozen, is_fixed, model_));
  if (workload_.lora) train_adapters_alone(model_);
  append(errors_, apply_patterns(patterns_of(workload_.trainable, "--trainable"),
                                 patterns_of(workload_.frozen, "--freeze"), is_fixed, model_));
  if (workload_.quantization) append(errors_, check_quantized(model_));
  if (workload_.lora && workload_.lora->float32_base) append(errors_, widen_base(workload_, model_));
}

void Builder::finish(const DimensionValues& dimensions, const Recipe& recipe) {
  const auto loss = values_.find(spec_.loss);
  if (loss == values_.end()) {
    std::vector<std::string> names;
    for (const auto& [name, id] : values_) names.push_back(name);
    errors_.push_back(Error{spec_.file_name, fmt::format("No module produces the loss \"{}\".", spec_.loss),
                            suggest_name(spec_.loss, names)});
  } else {
    model_.loss = loss->second;
    const Shape& shape = model_.values[model_.loss].shape;
    if (!shape.empty()) {
      errors_.push_back(Error{spec_.file_name, fmt::format("The loss \"{}\" is {}.", spec_.loss, to_string(shape)),
                              "A loss is a scalar."});
    }
  }
  check_unread();
  if (workload_.lora) append(errors_, adapters_.check(*workload_.lora, spec_));
  if (row_) append(errors_, check_packed(*row_, model_));
  if (workload_.titan_attention) append(errors_, check_titan(model_));
  if (workload_.liger) append(errors_, liger_.check(*workload_.liger, spec_.name));
  if (workload_.float8) append(errors_, float8_.check(*workload_.float8, spec_.name));
  if (!errors_.empty()) return;
  append(errors_, tree_.tie(spec_.tied));
  append(errors_, tree_.finish(spec_.registration));
  if (errors_.empty()) append(errors_, set_initial_values(spec_.initial_values, model_));
  if (workload_.lora) start_adapters(model_);
  set_trainable(recipe);
  SpecNumber tokens{.text = dimensions.has("seq") ? "batch * seq" : "batch", .where = spec_.file_name};
  if (spec_.tokens_per_step) tokens = *spec_.tokens_per_step;
  const auto num_tokens = dimensions.integer(tokens, 1);
  if (!num_tokens) append(errors_, num_tokens.error());
  model_.tokens_per_step = num_tokens.value_or(0);
  model_.notes.insert(model_.notes.begin(), spec_.notes.begin(), spec_.notes.end());
  model_.notes.insert(model_.notes.end(), recipe.notes.begin(), recipe.notes.end());
  if (workload_.lora) model_.notes.push_back(note_of_adapters(*workload_.lora, model_));
  if (workload_.quantization) model_.notes.push_back(note_of_quantized(*workload_.quantization, spec_.dtype, model_));
  if (workload_.float8) model_.notes.push_back(note_of_float8(*workload_.float8, model_));
}

Result<Model> Builder::run() {
  FSDP_TRY(const Recipe recipe, find_recipe(spec_, workload_.recipe));
  if (workload_.quantization && !workload_.lora) return tl::unexpected(Errors{quantized_without_adapters()});
  const DimensionValues dimensions(spec_, recipe, workload_, errors_);
  if (!errors_.empty()) return tl::unexpected(std::move(errors_));
  model_.name = spec_.name;
  model_.source = spec_.source;
  model_.dimensions = dimensions.values();
  add_inputs(dimensions);
  if (workload_.packing) {
    FSDP_TRY(row_, packed_row(*workload_.packing, dimensions, spec_));
    add_packed_inputs(*row_, model_, values_);
  }
  std::vector<SpecEntry> entries;
  for (const SpecModule& module : spec_.modules) {
    const bool is_left_out = !module.recipes.empty() && std::find(module.recipes.begin(), module.recipes.end(),
                                                                  recipe.name) == module.recipes.end();
    if (!is_left_out) entries.push_back(evaluate_entry(module, dimensions, errors_));
  }
  const bool fuses_head = workload_.loss_takes_head && ends_with_head(entries);
  if (!fuses_head) place_loss(entries);
  check_after_root(entries);
  // The outputs of a bad entry are unknown, so later messages would only repeat its error.
  for (const SpecEntry& entry : entries) {
    if (!errors_.empty()) return tl::unexpected(std::move(errors_));
    if (fuses_head && &entry == &entries[entries.size() - 2]) {
      add_fused_head(entry, entries.back());
      break;
    }
    if (workload_.float_logits && entry.spec == loss_) cast_logits(*entry.spec);
    add_entry(entry);
  }
  if (!errors_.empty()) return tl::unexpected(std::move(errors_));
  add_classes();
  finish(dimensions, recipe);
  if (!errors_.empty()) return tl::unexpected(std::move(errors_));
  derive_gradient_flow(model_);
  return std::move(model_);
}

}  // namespace

Result<Model> build_model(const ModelSpec& spec, const Workload& workload) {
  FSDP_TRY(Model model, spec.captured != nullptr ? captured_point(spec, workload) : Builder(spec, workload).run());
  if (auto built = build_other_models(workload, model); !built) return tl::unexpected(std::move(built).error());
  return model;
}

}  // namespace fsdp

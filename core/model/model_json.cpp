// Writes a model out call by call.
//
// In `Model` a block is written once, with numbers for its own values. Here every call gets its own tensors: its inputs
// are the current tensors of the model's values, each other value of the block is a new tensor, and the call's outputs
// become the current tensors of the model's values. So a tensor has one number everywhere, and a value that a block
// returns unchanged keeps its number.

#include "core/model/model_json.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/model/model_index.h"

namespace fsdp {

namespace {

void write_dtype(JsonWriter& writer, const std::optional<Dtype>& dtype) {
  writer.key("dtype");
  if (dtype) {
    writer.value(name_of(*dtype));
  } else {
    writer.value(nullptr);
  }
}

/// Writes a member, unless it has its usual value.
auto members_of(JsonWriter& writer) {
  return [&writer](std::string_view name, const auto& value, const auto& usual_value) {
    if (value != usual_value) writer.member(name, value);
  };
}

/// The frequencies of a rotary table, without defaults.
void write_frequencies(JsonWriter& writer, const RotaryFrequencies& rotary) {
  const RotaryFrequencies usual;
  const auto member = members_of(writer);
  member("rope_theta", rotary.theta, usual.theta);
  member("rope_scaling", name_of(rotary.scaling), name_of(usual.scaling));
  member("rope_factor", rotary.factor, usual.factor);
  member("low_freq_factor", rotary.low_freq_factor, usual.low_freq_factor);
  member("high_freq_factor", rotary.high_freq_factor, usual.high_freq_factor);
  member("original_max_positions", rotary.original_positions, usual.original_positions);
  member("beta_fast", rotary.beta_fast, usual.beta_fast);
  member("beta_slow", rotary.beta_slow, usual.beta_slow);
  member("truncate", rotary.truncate, usual.truncate);
  member("attention_factor", rotary.attention_factor, usual.attention_factor);
}

void write_lists(JsonWriter& writer, const OpAttributes& attributes) {
  if (!attributes.documents.empty()) writer.member("documents", attributes.documents);
  if (!attributes.lengths.empty()) writer.member("lengths", attributes.lengths);
}

void write_experts(JsonWriter& writer, const OpAttributes& attributes, const OpAttributes& usual) {
  const auto member = members_of(writer);
  member("num_experts", attributes.num_experts, usual.num_experts);
  member("experts_per_token", attributes.experts_per_token, usual.experts_per_token);
  member("norm_topk_prob", attributes.norm_topk_prob, usual.norm_topk_prob);
  member("sigmoid", attributes.sigmoid, usual.sigmoid);
  member("top_first", attributes.top_first, usual.top_first);
  member("limit", attributes.limit, usual.limit);
  member("topk_groups", attributes.topk_groups, usual.topk_groups);
}

void write_float8(JsonWriter& writer, const OpAttributes& attributes) {
  if (attributes.float8) writer.member("float8", name_of(*attributes.float8));
  if (attributes.gathered_in_float8) writer.member("gathered_in_float8", true);
}

/// A model has every attribute of every op; this omits defaults.
void write_attributes(JsonWriter& writer, const OpAttributes& attributes) {
  const OpAttributes usual;
  const auto member = members_of(writer);
  writer.key("attributes");
  writer.begin_object(JsonLayout::OneLine);
  member("heads", attributes.heads, usual.heads);
  member("kv_heads", attributes.kv_heads, usual.kv_heads);
  member("head_dim", attributes.head_dim, usual.head_dim);
  member("causal", attributes.causal, usual.causal);
  member("window", attributes.window, usual.window);
  member("softcap", attributes.softcap, usual.softcap);
  member("score_scale", attributes.score_scale, usual.score_scale);
  member("probability", attributes.probability, usual.probability);
  member("packed", name_of(attributes.packed), name_of(usual.packed));
  write_lists(writer, attributes);
  write_frequencies(writer, attributes.rotary);
  member("eps", attributes.eps, usual.eps);
  member("momentum", attributes.momentum, usual.momentum);
  member("partial_rotary", attributes.partial_rotary, usual.partial_rotary);
  member("interleaved", attributes.interleaved, usual.interleaved);
  member("by_halves", attributes.by_halves, usual.by_halves);
  member("as_complex", attributes.as_complex, usual.as_complex);
  member("from_cache", attributes.from_cache, usual.from_cache);
  member("of_positions", attributes.of_positions, usual.of_positions);
  member("one_op", attributes.one_op, usual.one_op);
  member("in_float", attributes.in_float, usual.in_float);
  member("wide", attributes.wide, usual.wide);
  member("unit_offset", attributes.unit_offset, usual.unit_offset);
  member("brief", attributes.brief, usual.brief);
  member("wide_weight", attributes.wide_weight, usual.wide_weight);
  member("as_trained", attributes.as_trained, usual.as_trained);
  member("unless_autocast", attributes.unless_autocast, usual.unless_autocast);
  member("approximate", attributes.approximate, usual.approximate);
  member("written_out", attributes.written_out, usual.written_out);
  member("transposed_weight", attributes.transposed_weight, usual.transposed_weight);
  member("shift", attributes.shift, usual.shift);
  member("padding_idx", attributes.padding_idx, usual.padding_idx);
  member("reflect", attributes.reflect, usual.reflect);
  member("keep_dim", attributes.keep_dim, usual.keep_dim);
  member("dim", attributes.dim, usual.dim);
  member("other_dim", attributes.other_dim, usual.other_dim);
  member("start", attributes.start, usual.start);
  member("length", attributes.length, usual.length);
  member("gate_first", attributes.gate_first, usual.gate_first);
  member("kernel", attributes.kernel, usual.kernel);
  member("stride", attributes.stride, usual.stride);
  member("padding", attributes.padding, usual.padding);
  member("dilation", attributes.dilation, usual.dilation);
  member("groups", attributes.groups, usual.groups);
  write_experts(writer, attributes, usual);
  member("scale", attributes.scale, usual.scale);
  member("rounded", attributes.rounded, usual.rounded);
  member("fill", name_of(attributes.fill), name_of(usual.fill));
  member("value", attributes.value, usual.value);
  member("num_buckets", attributes.num_buckets, usual.num_buckets);
  member("max_distance", attributes.max_distance, usual.max_distance);
  member("bidirectional", attributes.bidirectional, usual.bidirectional);
  member("liger", attributes.liger, usual.liger);
  member("in_place", attributes.in_place, usual.in_place);
  member("out_features", attributes.out_features, usual.out_features);
  member("nested", attributes.nested, usual.nested);
  member("cloned", attributes.cloned, usual.cloned);
  member("fp4", attributes.fp4, usual.fp4);
  write_float8(writer, attributes);
  if (attributes.dtype) writer.member("dtype", name_of(*attributes.dtype));
  writer.end_object();
}

class ExpandedModelWriter {
 public:
  ExpandedModelWriter(JsonWriter& writer, const Model& model) : w_(writer), model_(model) { number_tensors(); }

  void write() {
    w_.begin_object();
    w_.member("format_version", kExpandedModelFormatVersion);
    w_.member("name", model_.name);
    w_.member("source", model_.source);
    w_.member("fingerprint", fingerprint_of(model_));
    w_.key("dimensions");
    w_.begin_object();
    for (const Dimension& dimension : model_.dimensions) w_.member(dimension.name, dimension.value);
    w_.end_object();
    w_.member("tokens_per_step", model_.tokens_per_step);
    modules();
    parameters();
    buffers();
    tensors();
    std::vector<int> inputs;
    for (const int input : model_.inputs) inputs.push_back(tensor_of_value_[input]);
    w_.member("inputs", inputs);
    if (!model_.inputs_beside_root.empty()) {
      std::vector<int> beside;
      for (const int input : model_.inputs_beside_root) beside.push_back(tensor_of_value_[input]);
      w_.member("inputs_beside_root", beside);
    }
    held("held", false);
    held("held_if_cached", true);
    locals();
    w_.member("loss", model_.loss < 0 ? -1 : tensor_of_value_[model_.loss]);
    after_root();
    calls();
    ops();
    w_.member("notes", model_.notes);
    w_.end_object();
  }

 private:
  int add_tensor(const Value& value, const std::string& module) {
    tensors_.push_back({&value, module.empty() ? value.name : module + "." + value.name});
    return static_cast<int>(tensors_.size()) - 1;
  }

  /// Ops after the forward of the root, such as a loss, belong to no module; this assigns them to the root.
  std::string name_of_module(int module) const { return module < 0 ? std::string() : model_.modules[module].name; }

  void number_tensors() {
    tensor_of_value_.assign(model_.values.size(), -1);
    for (const int input : model_.inputs) {
      tensor_of_value_[input] = add_tensor(model_.values[input], "");
    }
    for (const Call& call : model_.calls) {
      const Block& block = model_.blocks[call.block];
      std::vector<int> numbers;
      for (const int input : call.inputs) numbers.push_back(tensor_of_value_[input]);
      for (std::size_t v = numbers.size(); v < block.values.size(); ++v) {
        numbers.push_back(add_tensor(block.values[v], name_of_module(call.module)));
      }
      for (std::size_t o = 0; o < call.outputs.size(); ++o) {
        tensor_of_value_[call.outputs[o]] = numbers[block.outputs[o]];
      }
      tensor_numbers_.push_back(std::move(numbers));
    }
  }

  void held(std::string_view name, bool if_cached) {
    std::vector<int> tensors;
    for (const HeldValue& held : model_.held) {
      if (held.if_cached == if_cached) tensors.push_back(tensor_of_value_[held.value]);
    }
    w_.member(name, tensors);
  }

  void local(int tensor, int module, int until) {
    w_.begin_object(JsonLayout::OneLine);
    w_.member("tensor", tensor);
    w_.member("module", name_of_module(module));
    w_.member("until", until);
    w_.end_object();
  }

  void locals() {
    w_.key("locals");
    w_.begin_array();
    const ModelIndex index = index_of(model_);
    for (std::size_t c = 0; c < model_.calls.size(); ++c) {
      const Call& call = model_.calls[c];
      for (const LocalVariable& each : model_.blocks[call.block].locals) {
        local(tensor_numbers_[c][each.value], call.modules[each.module], index.call_begin[c] + each.until);
      }
    }
    for (const HeldArgument& held : index.held_arguments) {
      const bool is_named = std::any_of(model_.named.begin(), model_.named.end(),
                                        [&](const NamedValue& named) { return named.value == held.value; });
      if (!is_named) continue;
      local(tensor_of_value_[held.value], held.module, held.end - 1);
    }
    w_.end_array();
  }

  void after_root() {
    std::size_t first = 0;
    for (const Call& call : model_.calls) {
      if (call.module < 0) return w_.member("after_root", first);
      first += model_.blocks[call.block].ops.size();
    }
  }

  void modules() {
    w_.key("modules");
    w_.begin_array();
    for (const Module& module : model_.modules) {
      w_.begin_object(JsonLayout::OneLine);
      w_.member("name", module.name);
      w_.member("class", module.class_name);
      w_.member("called", module.called);
      w_.end_object();
    }
    w_.end_array();
  }

  /// Every name in order of registration: a tied parameter appears under each of its names.
  void parameters() {
    w_.key("parameters");
    w_.begin_array();
    for (std::size_t m = 0; m < model_.modules.size(); ++m) {
      std::vector<const std::string*> names_here;
      for (const int id : model_.modules[m].parameters) {
        const Parameter& parameter = model_.parameters[id];
        const std::string* name = next_name(parameter, model_.modules[m].name, names_here);
        assert(name != nullptr);
        names_here.push_back(name);
        write_parameter(parameter, *name);
      }
    }
    w_.end_array();
  }

  static const std::string* next_name(const Parameter& parameter, std::string_view module,
                                      const std::vector<const std::string*>& taken) {
    const auto fits = [&](const std::string& name) {
      if (parent_name(name) != module) return false;
      for (const std::string* other : taken) {
        if (*other == name) return false;
      }
      return true;
    };
    if (fits(parameter.name)) return &parameter.name;
    for (const std::string& name : parameter.tied_names) {
      if (fits(name)) return &name;
    }
    return nullptr;
  }

  void write_parameter(const Parameter& parameter, const std::string& name) {
    w_.begin_object(JsonLayout::OneLine);
    w_.member("name", name);
    w_.member("shape", parameter.shape);
    write_dtype(w_, parameter.dtype);
    w_.member("trainable", parameter.trainable);
    w_.member("receives_gradient", parameter.receives_gradient);
    w_.key("tied_to");
    if (name == parameter.name) {
      w_.value(nullptr);
    } else {
      w_.value(parameter.name);
    }
    write_initial_values(parameter.initial);
    w_.end_object();
  }

  void write_initial_values(const InitialValues& initial) {
    w_.key("initial");
    w_.begin_object(JsonLayout::OneLine);
    w_.member("distribution", fsdp::name_of(kDistributionTable, initial.distribution));
    if (initial.distribution == Distribution::Constant) {
      w_.member("value", initial.value);
    } else if (initial.distribution != Distribution::Sinusoid) {
      w_.member("std", initial.std);
    }
    if (initial.zero_row >= 0) w_.member("zero_row", initial.zero_row);
    w_.end_object();
  }

  void buffers() {
    w_.key("buffers");
    w_.begin_array();
    for (const Buffer& buffer : model_.buffers) {
      w_.begin_object(JsonLayout::OneLine);
      w_.member("name", buffer.name);
      w_.member("shape", buffer.shape);
      write_dtype(w_, buffer.dtype);
      w_.member("persistent", buffer.persistent);
      if (!buffer.registered) w_.member("registered", false);
      w_.end_object();
    }
    w_.end_array();
  }

  void tensors() {
    w_.key("tensors");
    w_.begin_array();
    for (const Tensor& tensor : tensors_) {
      w_.begin_object(JsonLayout::OneLine);
      w_.member("name", tensor.name);
      w_.member("shape", tensor.value->shape);
      write_dtype(w_, tensor.value->dtype);
      if (tensor.value->requires_grad) w_.member("requires_grad", true);
      w_.end_object();
    }
    w_.end_array();
  }

  void calls() {
    w_.key("calls");
    w_.begin_array();
    std::size_t begin = 0;
    for (const Call& call : model_.calls) {
      const Block& block = model_.blocks[call.block];
      w_.begin_object(JsonLayout::OneLine);
      w_.member("module", name_of_module(call.module));
      w_.member("block", block.kind);
      w_.member("repeated", call.repeated);
      w_.member("first_op", begin);
      w_.member("num_ops", block.ops.size());
      w_.end_object();
      begin += block.ops.size();
    }
    w_.end_array();
  }

  void ops() {
    w_.key("ops");
    w_.begin_array();
    for (std::size_t c = 0; c < model_.calls.size(); ++c) {
      for (const Op& op : model_.blocks[model_.calls[c].block].ops) write_op(op, c);
    }
    w_.end_array();
  }

  void write_op(const Op& op, std::size_t c) {
    const Call& call = model_.calls[c];
    const auto numbers = [&](const std::vector<int>& values) {
      std::vector<int> tensors;
      for (const int value : values) tensors.push_back(tensor_numbers_[c][value]);
      return tensors;
    };
    std::vector<std::string> names;
    for (const int p : op.parameters) names.push_back(model_.parameters[call.parameters[p]].name);
    w_.begin_object(JsonLayout::OneLine);
    w_.member("kind", name_of(op.kind));
    w_.member("module", name_of_module(call.modules[op.module]));
    w_.member("inputs", numbers(op.inputs));
    w_.member("outputs", numbers(op.outputs));
    w_.member("parameters", names);
    write_attributes(w_, op.attributes);
    w_.end_object();
  }

  struct Tensor {
    const Value* value = nullptr;
    std::string name;
  };

  JsonWriter& w_;
  const Model& model_;
  std::vector<Tensor> tensors_;
  std::vector<int> tensor_of_value_;              // [num values] The current tensor of a value of the model.
  std::vector<std::vector<int>> tensor_numbers_;  // [num calls][num block values]
};

}  // namespace

void write_expanded_model(JsonWriter& writer, const Model& model) {
  ExpandedModelWriter(writer, model).write();
}

std::string expanded_model_text(const Model& model) {
  JsonWriter writer;
  write_expanded_model(writer, model);
  return std::move(writer).take();
}

}  // namespace fsdp

// Reads a captured model: the modules that its points share, then the calls of each point.
// core/spec/captured_block_reader.cpp reads blocks.
//
// A recorder wrote the file, so the checks cover what the simulator relies on, not what would be odd: indices are in
// range, every value is made before it is read, a recorded backward is reachable in the graph of the ops, and the
// gradients on the tapes match the parameters that get one.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/limits.h"
#include "core/model/model_index.h"
#include "core/model/op_shapes.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/plan_names.h"
#include "core/spec/captured_block_reader.h"
#include "core/spec/captured_model.h"
#include "core/spec/model_spec_reader.h"

namespace fsdp {

namespace captured_reader {

namespace {

constexpr std::string_view kCapturedFormat = "1.0";
/// Ops and tensors of all calls of a step, which the simulator numbers.
constexpr std::int64_t kMostTraced = 16'000'000;

void read_module(const JsonValue& value, Model& model, JsonErrors& errors) {
  const int index = static_cast<int>(model.modules.size());
  Module module;
  ObjectReader object(value, errors);
  object.required("name", module.name);
  object.required("class", module.class_name);
  object.optional("called", module.called);
  object.finish();
  if (index == 0) {
    if (!module.name.empty()) errors.add(value, "The first module is the root, whose name is empty.");
  } else {
    // In pre-order, a parent is the previous module or one above that.
    const std::string parent(parent_name(module.name));
    int above = index - 1;
    while (above > 0 && model.modules[above].name != parent) above = model.modules[above].parent;
    if (module.name.empty() || model.modules[above].name != parent) {
      errors.add(value, fmt::format("\"{}\" does not follow its parent or one of its siblings.", module.name),
                 "Modules stand as named_modules() gives them.");
      above = 0;
    }
    module.parent = above;
    model.modules[above].children.push_back(index);
  }
  model.modules.push_back(std::move(module));
}

void read_parameter(const JsonValue& value, const std::map<std::string, int, std::less<>>& modules, Model& model,
                    JsonErrors& errors) {
  Parameter parameter;
  ObjectReader object(value, errors);
  object.required("name", parameter.name);
  if (const JsonValue* shape = object.required_value("shape")) read_shape(*shape, parameter.shape, errors);
  object.required("dtype", parameter.dtype, model_spec_reader::kSpecDtype);
  object.required("trainable", parameter.trainable);
  object.required("receives_gradient", parameter.receives_gradient);
  object.optional("tied_names", parameter.tied_names);
  object.optional("muon", parameter.is_muon);
  object.optional("stands_for", parameter.stands_for, IntegerRange{0, kMostElements});
  object.finish();
  const auto module = modules.find(parent_name(parameter.name));
  if (module == modules.end()) {
    errors.add(value, fmt::format("No module is named \"{}\".", parent_name(parameter.name)), std::string(kAgain));
    return;
  }
  if (std::find(parameter.shape.begin(), parameter.shape.end(), 0) != parameter.shape.end()) {
    errors.add(value, fmt::format("The parameter \"{}\" has no elements.", parameter.name));
  }
  if (parameter.is_muon && parameter.shape.size() != 2) {
    errors.add(value, fmt::format("\"{}\" is no matrix, and Muon updates only matrices.", parameter.name));
  }
  if (parameter.receives_gradient && !parameter.trainable) {
    errors.add(value, fmt::format("\"{}\" is not trainable and receives a gradient.", parameter.name));
  }
  parameter.module = module->second;
  model.modules[parameter.module].parameters.push_back(static_cast<int>(model.parameters.size()));
  model.parameters.push_back(std::move(parameter));
}

void read_buffer(const JsonValue& value, Model& model, JsonErrors& errors) {
  Buffer& buffer = model.buffers.emplace_back();
  ObjectReader object(value, errors);
  object.required("name", buffer.name);
  if (const JsonValue* shape = object.required_value("shape")) read_shape(*shape, buffer.shape, errors);
  object.required("dtype", buffer.dtype, model_spec_reader::kSpecDtype);
  object.optional("persistent", buffer.persistent);
  object.optional("registered", buffer.registered);
  std::string copied;
  if (object.optional("copy_of", copied)) {
    const auto parameter = std::find_if(model.parameters.begin(), model.parameters.end(),
                                        [&](const Parameter& each) { return each.name == copied; });
    if (parameter == model.parameters.end())
      object.fail("copy_of", fmt::format("There is no parameter \"{}\".", copied));
    buffer.copy_of = static_cast<int>(parameter - model.parameters.begin());
  }
  object.finish();
}

/// "No cost is known of a, b and 3 more: ..."
std::string note_without_cost(const std::vector<std::string>& names) {
  constexpr std::size_t kMostNamed = 5;
  std::string listed;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) {
    listed += (listed.empty() ? "" : ", ") + names[i];
  }
  if (names.size() > kMostNamed) listed += fmt::format(" and {} more", names.size() - kMostNamed);
  return fmt::format(
      "No cost is known of {}. A step takes longer than predicted by their time, so that the range of its time has no "
      "upper end.",
      listed);
}

/// The common part of all points.
void read_modules(ObjectReader& object, Model& model, JsonErrors& errors) {
  for_each(object, "modules", errors, [&](const JsonValue& item) { read_module(item, model, errors); });
  if (object.is_object() && model.modules.empty()) object.fail("modules", "There are no modules.");
  std::map<std::string, int, std::less<>> modules;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    modules.emplace(model.modules[m].name, static_cast<int>(m));
  }
  for_each(object, "parameters", errors, [&](const JsonValue& item) { read_parameter(item, modules, model, errors); });
  for_each(object, "buffers", errors, [&](const JsonValue& item) { read_buffer(item, model, errors); });
  std::int64_t elements = 0;
  for (const Parameter& parameter : model.parameters) {
    if (elements <= kMostElements) elements += num_elements(parameter.shape);
  }
  if (elements > kMostElements) object.fail("parameters", "The model has more than 2^53 elements in all.");
}

class PointReader {
 public:
  PointReader(Model& model, JsonErrors& errors) : model_(model), errors_(errors) {}

  void read(const JsonValue& value) {
    ObjectReader object(value, errors_);
    if (const JsonValue* dimensions = object.required_value("dimensions")) read_dimensions(*dimensions);
    object.required("tokens_per_step", model_.tokens_per_step, IntegerRange{1, kMostElements});
    if (const JsonValue* values = object.required_value("values")) read_values(*values, model_.values, errors_);
    if (const JsonValue* inputs = object.required_value("inputs")) {
      read_indices(*inputs, model_.inputs, model_.values.size(), errors_);
    }
    object.required("loss", model_.loss, IntegerRange{0, static_cast<std::int64_t>(model_.values.size()) - 1});
    for_each(object, "blocks", errors_,
             [&](const JsonValue& item) { read_block(item, model_.blocks.emplace_back(), errors_); });
    if (!errors_.empty() || !object.is_object()) return;
    is_made_.assign(model_.values.size(), false);
    for (const int input : model_.inputs) is_made_[input] = true;
    for_each(object, "calls", errors_, [&](const JsonValue& item) { read_call(item); });
    if (model_.calls.empty() && errors_.empty()) object.fail("calls", "There are no calls.");
    if (!errors_.empty()) return;
    for_each(object, "stacks", errors_, [&](const JsonValue& item) { read_stack(item); });
    if (const JsonValue* passes = object.optional_value("passes")) {
      read_passes(model_, is_made_, *passes, object.optional_value("clearings"), errors_);
    }
    object.ignore("clearings");
    object.optional("clears_gradients_at", model_.clears_gradients_at,
                    IntegerRange{-1, static_cast<std::int64_t>(model_.calls.size())});
    object.optional("keeps_gradients", model_.keeps_gradients);
    const JsonValue* held = object.optional_value("buffers");
    if (held != nullptr && expect_type(*held, JsonType::Array, "a list", errors_)) {
      for (const JsonValue& item : held->elements) read_buffer(item, model_, errors_);
    }
    if (!object.finish() || !errors_.empty()) return;
    if (!is_made_[model_.loss]) object.fail("loss", "No call makes it.", std::string(kAgain));
    if (num_elements(model_.values[model_.loss].shape) != 1) object.fail("loss", "A loss is a scalar.");
    check_gradients(*value.find("calls"));
  }

 private:
  void read_dimensions(const JsonValue& value) {
    if (!expect_type(value, JsonType::Object, "an object such as {\"batch\": 4, \"seq\": 1024}", errors_)) return;
    for (const JsonMember& member : value.members) {
      std::int64_t size = 1;
      read_json(member.value, size, errors_, IntegerRange{1, kMostElements});
      model_.dimensions.push_back({member.key, static_cast<double>(size)});
    }
    if (find_dimension(model_.dimensions, "batch") == nullptr) {
      errors_.add(value, "There is no dimension \"batch\".", "It is the samples of one micro-batch on one GPU.");
    }
  }

  void read_call(const JsonValue& value) {
    Call call;
    ObjectReader object(value, errors_);
    if (!object.required("block", call.block, IntegerRange{0, static_cast<std::int64_t>(model_.blocks.size()) - 1})) {
      object.finish(UnknownKeys::Ignore);  // The others were not requested.
      return;
    }
    const auto last_module = static_cast<std::int64_t>(model_.modules.size()) - 1;
    object.required("module", call.module, IntegerRange{-1, last_module});
    object.required("modules", call.modules, IntegerRange{-1, last_module});
    const auto indices = [&](std::string_view key, std::vector<int>& out, std::size_t size) {
      if (const JsonValue* list = object.required_value(key)) read_indices(*list, out, size, errors_);
    };
    indices("parameters", call.parameters, model_.parameters.size());
    indices("inputs", call.inputs, model_.values.size());
    indices("outputs", call.outputs, model_.values.size());
    object.optional("repeated", call.repeated);
    object.optional("backward", call.backward, IntegerRange{-1, kMostMicroBatches - 1});
    if (!object.finish()) return;
    const bool good = check_call(object, call);
    for (const int output : call.outputs) is_made_[output] = true;
    if (good) model_.calls.push_back(std::move(call));
  }

  bool check_call(ObjectReader& object, const Call& call) {
    const Block& block = model_.blocks[call.block];
    const auto expect = [&](std::string_view key, std::size_t size, std::size_t wanted) {
      return size == wanted || object.fail(key, fmt::format("It has {} entries; the block has {}.", size, wanted));
    };
    bool good = expect("modules", call.modules.size(), block.modules.size());
    good = expect("parameters", call.parameters.size(), block.parameters.size()) && good;
    good = expect("inputs", call.inputs.size(), static_cast<std::size_t>(block.num_inputs)) && good;
    good = expect("outputs", call.outputs.size(), block.outputs.size()) && good;
    if (!good) return false;
    for (const int module : call.modules) {
      bool is_below = call.module < 0 && module < 0;
      for (int m = module; call.module >= 0 && m >= 0 && !is_below; m = model_.modules[m].parent) {
        is_below = m == call.module;
      }
      if (!is_below) return object.fail("modules", "A module is not below that of the call.");
    }
    for (std::size_t p = 0; p < call.parameters.size(); ++p) {
      const Parameter& parameter = model_.parameters[call.parameters[p]];
      if (parameter.shape != block.parameters[p]) {
        return object.fail("parameters", fmt::format("\"{}\" is {}, and the block's is {}.", parameter.name,
                                                     to_string(parameter.shape), to_string(block.parameters[p])));
      }
    }
    for (const int input : call.inputs) {
      if (!is_made_[input]) return object.fail("inputs", fmt::format("No call before makes value {}.", input));
    }
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      const int output = call.outputs[o];
      const auto first = std::find(call.outputs.begin(), call.outputs.end(), output);
      if (is_made_[output] || first != call.outputs.begin() + static_cast<std::ptrdiff_t>(o)) {
        return object.fail("outputs", fmt::format("Value {} is made twice.", output));
      }
    }
    if (call.repeated && call.module < 0) return object.fail("repeated", "A repeated call has a module.");
    return count(object, block);
  }

  bool count(ObjectReader& object, const Block& block) {
    std::size_t storages = 0;
    for (const RecordedTape& tape : block.recorded->tapes) storages = std::max(storages, tape.storage_op.size());
    num_traced_ += static_cast<std::int64_t>(block.ops.size() + storages);
    return num_traced_ <= kMostTraced || object.fail("block", "The step has more than 16 million ops and tensors.");
  }

  void read_stack(const JsonValue& value) {
    Stack stack;
    ObjectReader object(value, errors_);
    object.required("name", stack.name);
    object.required("class", stack.class_name);
    const JsonValue* calls = object.required_value("calls");
    if (calls != nullptr) read_indices(*calls, stack.calls, model_.calls.size(), errors_);
    if (!object.finish()) return;
    const bool are_repeated =
        std::all_of(stack.calls.begin(), stack.calls.end(), [&](int call) { return model_.calls[call].repeated; });
    const bool rises =
        std::adjacent_find(stack.calls.begin(), stack.calls.end(), std::greater_equal<>()) == stack.calls.end();
    if (stack.calls.empty() || !are_repeated || !rises) {
      object.fail("calls", "A stack is a list of repeated calls in forward order.");
      return;
    }
    model_.stacks.push_back(std::move(stack));
  }

  /// Compares the tapes' backward with the graph and the parameters.
  void check_gradients(const JsonValue& calls) {
    const ModelIndex index = index_of(model_);
    for (std::size_t c = 0; c < model_.calls.size() && errors_.empty(); ++c) {
      const Call& call = model_.calls[c];
      const Block& block = model_.blocks[call.block];
      for (std::size_t o = 0; o < block.ops.size(); ++o) {
        const bool in_backward = index.in_backward[static_cast<std::size_t>(index.call_begin[c]) + o];
        const auto has_events = [&](const RecordedTape& tape) { return !tape.backward[o].empty(); };
        const auto& tapes = block.recorded->tapes;
        if (in_backward || std::none_of(tapes.begin(), tapes.end(), has_events)) continue;
        errors_.add(calls.elements[c],
                    fmt::format("Op {} ({}) of its block has a backward, and no gradient reaches it.", o,
                                block.recorded->op_names[o]),
                    std::string(kAgain));
        return;
      }
    }
    if (model_.blocks.empty()) return;
    for (const RecordedTape& tape : model_.blocks.front().recorded->tapes) {
      check_gradients_of(calls, tape.dtype, tape.checkpointed);
    }
  }

  /// The set of parameters that get a gradient does not depend on how the step ran. If several calls use one, the call
  /// that gives its gradient may.
  void check_gradients_of(const JsonValue& calls, Dtype dtype, bool is_checkpointed) {
    std::vector<bool> has_gradient(model_.parameters.size(), false);
    for (const Call& call : model_.calls) {
      const RecordedTape* tape = model_.blocks[call.block].recorded->find(dtype, is_checkpointed);
      if (tape == nullptr) return;
      for (const auto& events : tape->backward) note_gradients(call, events, has_gradient);
    }
    for (std::size_t p = 0; p < has_gradient.size() && errors_.empty(); ++p) {
      const Parameter& parameter = model_.parameters[p];
      if (has_gradient[p] == parameter.receives_gradient) continue;
      errors_.add(calls,
                  parameter.receives_gradient
                      ? fmt::format("\"{}\" receives a gradient, and no call makes one.", parameter.name)
                      : fmt::format("A call makes a gradient of \"{}\", which receives none.", parameter.name),
                  std::string(kAgain));
    }
  }

  static void note_gradients(const Call& call, const std::vector<RecordedEvent>& events,
                             std::vector<bool>& has_gradient) {
    for (const RecordedEvent& event : events) {
      if (event.kind == RecordedEvent::Kind::ParamGrad) has_gradient[call.parameters[event.index]] = true;
    }
  }

  Model& model_;
  JsonErrors& errors_;
  std::vector<bool> is_made_;  // [num values] By an earlier call, or as an input.
  std::int64_t num_traced_ = 0;
};

void read_version(const JsonValue& value, JsonErrors& errors) {
  std::string version;
  if (read_json(value, version, errors) && version != kCapturedFormat) {
    errors.add(value, fmt::format("This program reads format \"{}\", not \"{}\".", kCapturedFormat, version),
               "Capture the script again with the program that came with this one.");
  }
}

void read_muon(const JsonValue& value, MuonOptions& muon, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.optional("nesterov", muon.nesterov);
  object.optional("ns_steps", muon.ns_steps, IntegerRange{1, 99});
  object.optional("steps_last", muon.steps_last);
  object.finish();
}

void read_optimizer(const JsonValue& value, Recipe& recipe, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Optimizer& optimizer = recipe.optimizer;
  std::string class_name;
  bool foreach = true;
  bool fused = false;
  const auto given = [&](std::string_view key) {
    const JsonValue* found = object.optional_value(key);
    return found != nullptr && found->type != JsonType::Null ? found : nullptr;
  };
  object.required("class", class_name);
  if (const JsonValue* kind = given("kind")) {
    read_json(*kind, optimizer.kind, errors, kOptimizerKindTable);
  } else {
    recipe.notes.push_back(
        fmt::format("The script's optimizer, {}, is not predicted: AdamW stands in for it.", class_name));
  }
  if (const JsonValue* member = given("foreach")) read_json(*member, foreach, errors);
  if (const JsonValue* member = given("fused")) read_json(*member, fused, errors);
  object.optional("weight_decay", optimizer.weight_decay, RealRange{0, 1e6});
  object.optional("momentum", optimizer.momentum, RealRange{0, 1});
  if (const JsonValue* norm = given("clip_grad_norm")) {
    double largest = 0;
    if (read_json(*norm, largest, errors, RealRange{0, 1e6})) optimizer.clip_grad_norm = largest;
  }
  if (const JsonValue* muon = given("muon")) read_muon(*muon, optimizer.muon.emplace(), errors);
  object.finish();
  optimizer.implementation = fused     ? OptimizerImplementation::Fused
                             : foreach ? OptimizerImplementation::Foreach
                                       : OptimizerImplementation::ForLoop;
  if (!optimizer_row(optimizer).has_fused_shards && fused) optimizer.implementation = OptimizerImplementation::Foreach;
}

/// The precisions in which every block of a point was recorded.
std::vector<Dtype> recorded_dtypes(const Model& model) {
  std::vector<Dtype> dtypes;
  for (const RecordedTape& tape : model.blocks.front().recorded->tapes) {
    const bool is_everywhere = std::all_of(model.blocks.begin(), model.blocks.end(), [&](const Block& block) {
      return block.recorded->find(tape.dtype, false) != nullptr;
    });
    const bool is_new = std::find(dtypes.begin(), dtypes.end(), tape.dtype) == dtypes.end();
    if (is_everywhere && is_new) dtypes.push_back(tape.dtype);
  }
  return dtypes;
}

/// A plan without a precision computes in a recorded one.
void set_precision(const Model& model, Recipe& recipe, const JsonValue& at, JsonErrors& errors) {
  const std::vector<Dtype> recorded = recorded_dtypes(model);
  if (recorded.empty()) {
    errors.add(at, "There is no precision in which every block was recorded.", std::string(kAgain));
    return;
  }
  const auto has = [&](Dtype dtype) { return std::find(recorded.begin(), recorded.end(), dtype) != recorded.end(); };
  const Dtype stored = activation_dtype(model, Plan{});
  if (has(stored)) return;
  const Dtype computed = has(Dtype::BFloat16) ? Dtype::BFloat16 : recorded.front();
  if (size_of(computed) < size_of(stored)) {
    recipe.mixed_precision = {.param_dtype = computed, .reduce_dtype = Dtype::Float32};
  } else {
    recipe.parameter_dtype = computed;
  }
}

/// Checks that the points have the same dimensions with other values.
void check_points(const CapturedModel& captured, const JsonValue& points, JsonErrors& errors) {
  const auto names_of = [](const Model& model) {
    std::vector<std::string> names;
    for (const Dimension& dimension : model.dimensions) names.push_back(dimension.name);
    return names;
  };
  for (std::size_t i = 1; i < captured.points.size(); ++i) {
    const Model& point = captured.points[i];
    if (names_of(point) != names_of(captured.points.front())) {
      errors.add(points.elements[i], "Its dimensions are not those of the first point.", std::string(kAgain));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (captured.points[j].dimensions != point.dimensions) continue;
      errors.add(points.elements[i], "A point before has the same sizes.", "Leave one of the two out.");
      break;
    }
  }
}

void read_points(const JsonValue& points, const Model& shared, CapturedModel& captured, JsonErrors& errors) {
  if (!expect_type(points, JsonType::Array, "a list", errors)) return;
  if (points.elements.empty()) errors.add(points, "A capture has at least one point.", std::string(kAgain));
  for (const JsonValue& point : points.elements) {
    Model model = shared;
    PointReader(model, errors).read(point);
    captured.points.push_back(std::move(model));
  }
  check_points(captured, points, errors);
}

}  // namespace

}  // namespace captured_reader

void read_captured_model(const JsonDocument& document, ModelSpec& spec, JsonErrors& errors) {
  using namespace captured_reader;
  auto captured = std::make_shared<CapturedModel>();
  Recipe recipe{.name = "default", .description = "As the script trains."};
  // A failed capture contains the reason.
  if (const JsonValue* why = document.root.find("error"); why != nullptr && why->type == JsonType::String) {
    errors.add(*why, fmt::format("The script could not be captured: {}", why->text), std::string(kAgain));
    return;
  }
  ObjectReader object(document.root, errors);
  object.ignore("kind");
  if (const JsonValue* version = object.required_value("format_version")) read_version(*version, errors);
  object.required("name", spec.name);
  object.required("source", spec.source);
  object.optional("command", captured->command);
  object.optional("batch_option", captured->batch_option);
  object.optional("framework", captured->framework);
  object.optional("gpu", captured->gpu);
  object.required("accumulation", recipe.accumulation, IntegerRange{1, kMostMicroBatches});
  if (const JsonValue* optimizer = object.required_value("optimizer")) read_optimizer(*optimizer, recipe, errors);
  object.optional("initialization", recipe.initialization, kInitializationTable);
  object.optional("cudnn_allow_tf32", recipe.cudnn_allow_tf32);
  object.optional("matmul_allow_tf32", recipe.matmul_allow_tf32);
  Model shared;
  read_modules(object, shared, errors);
  shared.says_last_micro_batch = false;
  object.optional("says_last_micro_batch", shared.says_last_micro_batch);
  object.optional("limits", shared.notes);
  object.optional("without_cost", shared.without_cost);
  object.optional("own_collectives", captured->own_collectives);
  object.optional("least_time_share", shared.least_time_share, RealRange{0.01, 1});
  if (!shared.without_cost.empty()) shared.notes.push_back(note_without_cost(shared.without_cost));
  shared.name = spec.name;
  shared.source = spec.source;
  shared.notes.insert(shared.notes.end(), recipe.notes.begin(), recipe.notes.end());
  const JsonValue* points = object.required_value("points");
  // Calls refer to modules and parameters, and cannot be checked without them.
  const bool good = object.finish() && errors.empty();
  if (!good || points == nullptr) return;
  read_points(*points, shared, *captured, errors);
  if (!errors.empty()) return;
  const Model& first = captured->points.front();
  spec.dtype = activation_dtype(first, Plan{});
  for (const Dimension& dimension : first.dimensions) {
    const std::string where = document.where(points->elements.front().offset);
    spec.dimensions.push_back({dimension.name, {fmt::format("{}", dimension.value), where}});
  }
  spec.notes = first.notes;
  if (recipe.initialization == Initialization::Device) {
    spec.notes.emplace_back(
        "The script makes its model on the GPU, so that each GPU holds all of it before it is sharded. A model that is "
        "made on the CPU or the meta device, and sharded first, needs less: --initialization meta.");
  }
  for (const Model& point : captured->points) set_precision(point, recipe, *points, errors);
  spec.recipes = {std::move(recipe)};
  spec.captured = std::move(captured);
}

}  // namespace fsdp

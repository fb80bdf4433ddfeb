// Reads what core/plan_json.cpp writes. Only what the plan cannot go without must be there (the model's name, the mesh
// and the units); for the rest a missing key means the default of core/plan.h, so that a plan can be written by hand.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/limits.h"
#include "core/name_ranges.h"
#include "core/plan_json.h"
#include "core/plan_names.h"

namespace fsdp {

namespace {

constexpr IntegerRange kRanks{1, std::int64_t{1} << 31};
constexpr IntegerRange kCounts{0, std::int64_t{1} << 31};
constexpr RealRange kNotNegative{0, std::numeric_limits<double>::max()};

/// Marks values that may be null.
struct OrNull {};

bool read_json(const JsonValue& value, std::optional<Dtype>& out, JsonErrors& errors, OrNull /*unused*/) {
  out.reset();
  if (value.type == JsonType::Null) return true;
  if (!expect_type(value, JsonType::String, "a dtype or null", errors)) return false;
  out = parse_dtype(value.text);
  if (out && is_floating_point(*out)) return true;
  out.reset();
  return errors.add(value, fmt::format("\"{}\" is not a floating point dtype.", value.text),
                    "Write float32, bfloat16, float16 or float64.");
}

/// A limit: a number above zero, or null.
bool read_json(const JsonValue& value, std::optional<double>& out, JsonErrors& errors, OrNull /*unused*/) {
  out.reset();
  if (value.type == JsonType::Null) return true;
  double number = 0;
  if (!read_json(value, number, errors, kNotNegative)) return false;
  if (number == 0) return errors.add(value, "The limit is 0.", "Write a number above 0, or null for no limit.");
  out = number;
  return true;
}

/// Marks a list of module names, with rows such as "model.layers.{0..27}".
struct Names {};

bool read_json(const JsonValue& value, std::vector<std::string>& out, JsonErrors& errors, Names /*unused*/) {
  std::vector<std::string> written;
  if (!read_json(value, written, errors)) return false;
  out.clear();
  bool good = true;
  for (std::size_t i = 0; i < written.size(); ++i) {
    Result<std::vector<std::string>> names = unfold_name(written[i], "");
    if (!names) {
      good = errors.add(value.elements[i], names.error()[0].what, names.error()[0].hint);
      continue;
    }
    if (static_cast<std::int64_t>(out.size() + names->size()) > kMostNamesOfARange) {
      return errors.add(value, "The list names more than a million modules.");
    }
    out.insert(out.end(), names->begin(), names->end());
  }
  return good;
}

void read_reshard(ObjectReader& object, ReshardAfterForward& reshard) {
  using Kind = ReshardAfterForward::Kind;
  const JsonValue* value = object.optional_value("reshard_after_forward");
  if (value == nullptr) return;
  if (value->type == JsonType::Bool) {
    reshard.kind = value->boolean ? Kind::Always : Kind::Never;
  } else if (value->type == JsonType::String && value->text == "default") {
    reshard.kind = Kind::Default;
  } else if (value->type == JsonType::Number && value->is_integer && value->integer >= 2) {
    reshard = {.kind = Kind::Smaller, .world_size = value->integer};
  } else {
    object.fail("reshard_after_forward",
                fmt::format("Expected true, false, a world size from 2 or \"default\", found {}.", describe(*value)));
  }
}

/// One entry of `units`: one unit, or a row of units of `modules_per_unit` modules each.
void read_units_entry(const JsonValue& value, std::vector<Unit>& units, JsonErrors& errors) {
  ObjectReader object(value, errors);
  std::vector<std::string> modules;
  Unit unit;
  std::int64_t per_unit = 0;
  const bool has_modules = object.required("modules", modules, Names{});
  object.optional("modules_per_unit", per_unit, IntegerRange{1, kMostNamesOfARange});
  read_reshard(object, unit.reshard_after_forward);
  if (has_modules && modules.empty()) object.fail("modules", "The list is empty.", "Name a module; \"\" is the root.");
  if (!object.finish()) return;
  const std::size_t step = per_unit == 0 ? modules.size() : static_cast<std::size_t>(per_unit);
  for (std::size_t i = 0; i < modules.size(); i += step) {
    const auto begin = modules.begin() + static_cast<std::ptrdiff_t>(i);
    unit.modules.assign(begin, begin + static_cast<std::ptrdiff_t>(std::min(step, modules.size() - i)));
    units.push_back(unit);
  }
}

void read_checkpointing(const JsonValue& value, Checkpointing& checkpointing, JsonErrors& errors) {
  ObjectReader object(value, errors);
  const JsonValue* modules = object.optional_value("modules");
  if (modules != nullptr && expect_type(*modules, JsonType::Array, "a list", errors)) {
    for (const JsonValue& element : modules->elements) {
      ObjectReader entry(element, errors);
      std::string written;
      CheckpointMode mode = CheckpointMode::Full;
      const bool named = entry.required("module", written);
      entry.required("mode", mode, kCheckpointModeTable);
      entry.finish();
      if (!named) continue;
      Result<std::vector<std::string>> names = unfold_name(written, "");
      if (!names) entry.fail("module", names.error()[0].what, names.error()[0].hint);
      if (!names) continue;
      for (std::string& name : *names) checkpointing.entries.push_back({.module = std::move(name), .mode = mode});
    }
  }
  if (const JsonValue* kept = object.optional_value("selective_keep"); kept != nullptr) {
    std::vector<std::string> known;
    for (int kind = 0; kind < kNumOpKinds; ++kind) known.emplace_back(name_of(static_cast<OpKind>(kind)));
    checkpointing.selective_keep.clear();
    const std::vector<std::string_view> names(known.begin(), known.end());
    if (expect_type(*kept, JsonType::Array, "a list", errors)) {
      for (const JsonValue& element : kept->elements) {
        const std::optional<std::size_t> kind = read_name(element, "op", names, errors);
        if (kind) checkpointing.selective_keep.push_back(static_cast<OpKind>(*kind));
      }
    }
  }
  object.optional("every_second_linear", checkpointing.every_second_linear);
  object.optional("early_stop", checkpointing.early_stop);
  object.finish();
}

void read_optimizer(const JsonValue& value, Optimizer& optimizer, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.optional("kind", optimizer.kind, kOptimizerKindTable);
  object.optional("implementation", optimizer.implementation, kOptimizerImplementationTable);
  object.optional("states", optimizer.states, kOptimizerStatesTable);
  object.optional("weight_decay", optimizer.weight_decay, kNotNegative);
  object.optional("momentum", optimizer.momentum, kNotNegative);
  object.optional("clip_grad_norm", optimizer.clip_grad_norm, OrNull{});
  if (optimizer.momentum != 0 && optimizer.kind != OptimizerKind::Sgd) {
    object.fail("momentum", fmt::format("{} has no momentum.", name_of(kOptimizerKindTable, optimizer.kind)),
                "Leave it out, or take sgd.");
  }
  object.finish();
}

void read_implementations(const JsonValue& value, Implementations& use, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.optional("rms_norm", use.rms_norm, kRmsNormTable);
  object.optional("rotary", use.rotary, kRotaryTable);
  object.optional("attention", use.attention, kAttentionBackendTable);
  object.optional("repeat_kv", use.repeat_kv);
  object.optional("upcast_logits", use.upcast_logits);
  object.optional("keep_logits", use.keep_logits);
  object.optional("float_logits", use.float_logits);
  object.optional("loss_after_root", use.loss_after_root);
  object.optional("use_cache", use.use_cache);
  object.optional("prefer_cudnn_attention", use.prefer_cudnn_attention);
  object.optional("cudnn_allow_tf32", use.cudnn_allow_tf32);
  object.optional("matmul_allow_tf32", use.matmul_allow_tf32);
  object.finish();
}

void read_quirks(const JsonValue& value, Quirks& quirks, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.optional("forward_all_gather_output_kept", quirks.forward_all_gather_output_kept);
  object.optional("last_gradient_kept_in_reduce", quirks.last_gradient_kept_in_reduce);
  object.optional("all_reduce_output_kept", quirks.all_reduce_output_kept);
  object.optional("clip_reduces_each_norm", quirks.clip_reduces_each_norm);
  object.optional("skip_collectives_of_one", quirks.skip_collectives_of_one);
  object.optional("cublaslt_workspace_bytes", quirks.cublaslt_workspace, kInBytes);
  object.finish();
}

/// The spelling of a key that the file has: `before` is read, too, until the next version.
std::string_view spelling_of(std::string_view key, std::string_view before, ObjectReader& object,
                             std::vector<std::string>* notes) {
  if (object.optional_value(key) != nullptr || object.optional_value(before) == nullptr) return key;
  if (notes != nullptr) {
    notes->push_back(fmt::format("The key \"{}\" is now \"{}\"; the next version reads only that.", before, key));
  }
  return before;
}

void read_runtime(const JsonValue& value, Runtime& runtime, JsonErrors& errors, std::vector<std::string>* notes) {
  ObjectReader object(value, errors);
  std::string flavor;
  const std::string_view key = spelling_of("flavor", "flavour", object, notes);
  if (object.optional(key, flavor)) {
    // The flavor sets what the implementations below do not say.
    const Result<Runtime> known = runtime_of_flavour(flavor);
    if (known) runtime = *known;
    if (!known) object.fail(key, known.error()[0].what, known.error()[0].hint);
  }
  object.optional("name", runtime.name);
  if (runtime.name != Runtime{}.name) {
    object.fail("name", fmt::format("\"{}\" is not a runtime that can be predicted.", runtime.name),
                fmt::format("Write {}.", Runtime{}.name));
  }
  object.optional("version", runtime.version);
  if (runtime.version != Runtime{}.version) {
    object.fail("version", fmt::format("The behavior of PyTorch \"{}\" is not known.", runtime.version),
                fmt::format("Write {}, the version that is predicted.", Runtime{}.version));
  }
  object.optional("allocator_settings", runtime.allocator_settings);
  if (const JsonValue* use = object.optional_value("implementations")) {
    read_implementations(*use, runtime.implementations, errors);
  }
  if (const JsonValue* quirks = object.optional_value("quirks")) read_quirks(*quirks, runtime.quirks, errors);
  object.finish();
}

void read_model(const JsonValue& value, Plan& plan, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("name", plan.model);
  object.required("file", plan.model_file);
  object.optional("fingerprint", plan.model_fingerprint);
  object.optional("recipe", plan.recipe);
  object.optional("trainable", plan.trainable);
  object.optional("frozen", plan.frozen);
  const JsonValue* dimensions = object.optional_value("dimensions");
  if (dimensions != nullptr && expect_type(*dimensions, JsonType::Object, "an object", errors)) {
    for (const JsonMember& member : dimensions->members) {
      Dimension dimension{.name = member.key};
      read_json(member.value, dimension.value, errors, kNotNegative);
      plan.dimensions.push_back(std::move(dimension));
    }
  }
  object.finish();
}

void read_mixed_precision(const JsonValue& value, MixedPrecision& precision, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.optional("param_dtype", precision.param_dtype, OrNull{});
  object.optional("reduce_dtype", precision.reduce_dtype, OrNull{});
  object.optional("output_dtype", precision.output_dtype, OrNull{});
  object.optional("cast_forward_inputs", precision.cast_forward_inputs);
  object.finish();
}

void read_mesh(const JsonValue& value, Mesh& mesh, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("replicate", mesh.replicate, kRanks);
  object.required("shard", mesh.shard, kRanks);
  object.finish();
}

}  // namespace

bool is_readable_version(std::string_view version, std::string_view ours) {
  const auto parse = [](std::string_view text, int& major, int& minor) {
    const char* end = text.data() + text.size();
    const auto [dot, bad_major] = std::from_chars(text.data(), end, major);
    if (bad_major != std::errc{} || dot == end || *dot != '.') return false;
    const auto [rest, bad_minor] = std::from_chars(dot + 1, end, minor);
    return bad_minor == std::errc{} && rest == end && major >= 0 && minor >= 0;
  };
  int major = 0, minor = 0, our_major = 0, our_minor = 0;
  return parse(version, major, minor) && parse(ours, our_major, our_minor) && major == our_major && minor <= our_minor;
}

void read_plan_members(ObjectReader& object, Plan& plan, std::vector<std::string>* notes) {
  JsonErrors& errors = object.errors();
  object.ignore("$schema");
  object.ignore("generator");
  std::string version;
  if (object.required("format_version", version) && !is_readable_version(version, kPlanFormatVersion)) {
    object.fail(
        "format_version", fmt::format("This program does not read plans of version \"{}\".", version),
        fmt::format("It reads up to {}; plan again, or use the program that wrote the file.", kPlanFormatVersion));
  }
  if (const JsonValue* model = object.required_value("model")) read_model(*model, plan, errors);
  if (const JsonValue* mesh = object.required_value("mesh")) read_mesh(*mesh, plan.mesh, errors);
  const JsonValue* units = object.required_value("units");
  if (units != nullptr && expect_type(*units, JsonType::Array, "a list", errors)) {
    for (const JsonValue& entry : units->elements) read_units_entry(entry, plan.units, errors);
  }
  object.optional("parameter_dtype", plan.parameter_dtype, OrNull{});
  if (const JsonValue* precision = object.optional_value("mixed_precision")) {
    read_mixed_precision(*precision, plan.mixed_precision, errors);
  }
  if (const JsonValue* checkpointing = object.optional_value("activation_checkpointing")) {
    read_checkpointing(*checkpointing, plan.checkpointing, errors);
  }
  object.optional("cpu_offload", plan.cpu_offload);
  object.optional("forward_prefetch", plan.forward_prefetch, kCounts);
  object.optional("backward_prefetch", plan.backward_prefetch, kCounts);
  object.optional("accumulation", plan.accumulation, IntegerRange{1, kMostMicroBatches});
  object.optional("sync_every_micro_batch", plan.sync_every_micro_batch);
  if (const JsonValue* optimizer = object.optional_value("optimizer")) {
    read_optimizer(*optimizer, plan.optimizer, errors);
  }
  const std::string_view initialization = spelling_of("initialization", "initialisation", object, notes);
  object.optional(initialization, plan.initialisation, kInitialisationTable);
  if (const JsonValue* runtime = object.optional_value("runtime")) read_runtime(*runtime, plan.runtime, errors, notes);
}

}  // namespace fsdp

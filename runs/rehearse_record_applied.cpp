#include "runs/rehearse_record_applied.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/plan/plan_names.h"

namespace fsdp::runs {

namespace {

constexpr std::string_view kRoot = "(root)";  // The hook's name for the unit of the root module.

/// Calls `read(element's object)` for each element of a list.
template <class Read>
void read_rows(const JsonValue& value, JsonErrors& errors, Read read) {
  if (!expect_type(value, JsonType::Array, "a list", errors)) return;
  for (const JsonValue& element : value.elements) {
    ObjectReader object(element, errors);
    read(object);
    object.finish(UnknownKeys::Ignore);
  }
}

/// A number that may be missing or null.
void read_number(ObjectReader& object, std::string_view key, std::int64_t& out) {
  const JsonValue* value = value_unless_null(object, key);
  if (value != nullptr) read_json(*value, out, object.errors(), kRecordedCount);
}

void read_flag(ObjectReader& object, std::string_view key, std::optional<bool>& out) {
  const JsonValue* value = value_unless_null(object, key);
  if (value != nullptr) read_json(*value, out, object.errors());
}

void read_flag(ObjectReader& object, std::string_view key, bool& out) {
  const JsonValue* value = value_unless_null(object, key);
  if (value != nullptr) read_json(*value, out, object.errors());
}

/// Any short value as a text: Python writes true, 8, "FULL_SHARD" or None in the same place.
std::string text_of(const JsonValue& value) {
  switch (value.type) {
    case JsonType::Bool:
      return value.boolean ? "true" : "false";
    case JsonType::Number:
    case JsonType::String:
      return value.text;
    case JsonType::Null:
    case JsonType::Array:
    case JsonType::Object:
      break;
  }
  return {};
}

void read_any(ObjectReader& object, std::string_view key, std::string& out) {
  if (const JsonValue* value = object.optional_value(key)) out = text_of(*value);
}

/// "torch.bfloat16" is "bfloat16" here.
std::string without_torch(std::string_view name) {
  constexpr std::string_view kPrefix = "torch.";
  return std::string(name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name);
}

void read_dtype(ObjectReader& object, std::string_view key, std::string& out) {
  read_text(object, key, out);
  out = without_torch(out);
}

void read_frame(ObjectReader& object, PythonFrame& frame) {
  read_text(object, "file", frame.file);
  read_number(object, "line", frame.line);
  read_text(object, "function", frame.function);
}

/// A type of NCCL without a Dtype here, such as float8, counts as plain bytes of its size.
Dtype dtype_of(const std::string& name, const Collective& collective) {
  if (const std::optional<Dtype> dtype = parse_dtype(name)) return *dtype;
  const std::int64_t size = collective.elements > 0 ? collective.payload.count() / collective.elements : 1;
  if (size >= 8) return Dtype::Int64;
  if (size >= 4) return Dtype::Int32;
  return size >= 2 ? Dtype::Int16 : Dtype::UInt8;
}

std::optional<CollectiveKind> parse_kind(const JsonValue& value, JsonErrors& errors) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kNumTrafficKinds; ++i) names.push_back(name_of(static_cast<CollectiveKind>(i)));
  const auto index = read_name(value, "collective", names, errors);
  if (!index) return std::nullopt;
  return static_cast<CollectiveKind>(*index);
}

void read_mixed_precision(const JsonValue& value, AppliedWrapper& wrapper, JsonErrors& errors) {
  ObjectReader object(value, errors);
  read_dtype(object, "param_dtype", wrapper.param_dtype);
  read_dtype(object, "reduce_dtype", wrapper.reduce_dtype);
  read_dtype(object, "buffer_dtype", wrapper.buffer_dtype);
  object.finish(UnknownKeys::Ignore);
}

void read_wrapper(ObjectReader& object, AppliedWrapper& wrapper) {
  object.required("class", wrapper.class_name);
  object.required("name", wrapper.name);
  read_text(object, "model", wrapper.model);
  read_any(object, "version", wrapper.version);
  read_any(object, "strategy", wrapper.strategy);
  if (const JsonValue* stage = value_unless_null(object, "zero_stage")) {
    read_json(*stage, wrapper.zero_stage.emplace(), object.errors(), IntegerRange{0, 3});
  }
  if (const JsonValue* units = value_unless_null(object, "units")) {
    read_rows(*units, object.errors(), [&](ObjectReader& row) {
      AppliedUnit unit;
      read_text(row, "name", unit.name);
      if (unit.name == kRoot) unit.name.clear();
      read_text(row, "class", unit.class_name);
      read_number(row, "parameters", unit.parameters);
      read_number(row, "elements", unit.elements);
      wrapper.units.push_back(std::move(unit));
    });
  }
  if (const JsonValue* precision = value_unless_null(object, "mixed_precision")) {
    read_mixed_precision(*precision, wrapper, object.errors());
  }
  read_any(object, "reshard_after_forward", wrapper.reshard_after_forward);
  read_flag(object, "offload", wrapper.offload);
  if (const JsonValue* autocast = value_unless_null(object, "autocast")) {
    read_json(*autocast, wrapper.autocast, object.errors());
    for (std::string& dtype : wrapper.autocast) dtype = without_torch(dtype);
  }
}

}  // namespace

const JsonValue* value_unless_null(ObjectReader& object, std::string_view key) {
  const JsonValue* value = object.optional_value(key);
  return value == nullptr || value->type == JsonType::Null ? nullptr : value;
}

void read_bytes(ObjectReader& object, std::string_view key, Bytes& out) {
  std::int64_t bytes = 0;
  if (object.required(key, bytes, kRecordedBytes)) out = Bytes(bytes);
}

void read_text(ObjectReader& object, std::string_view key, std::string& out) {
  const JsonValue* value = value_unless_null(object, key);
  if (value != nullptr) read_json(*value, out, object.errors());
}

void read_phase(ObjectReader& object, std::string_view key, StepPhase& out) {
  const JsonValue* value = value_unless_null(object, key);
  if (value != nullptr) read_json(*value, out, object.errors(), kStepPhaseTable);
}

void read_place(const JsonValue& value, PythonFrame& frame, JsonErrors& errors) {
  ObjectReader object(value, errors);
  read_frame(object, frame);
  object.finish(UnknownKeys::Ignore);
}

void read_stack(const JsonValue& value, std::vector<PythonFrame>& stack, JsonErrors& errors) {
  read_rows(value, errors, [&](ObjectReader& object) { read_frame(object, stack.emplace_back()); });
}

void read_failed_allocation(const JsonValue& value, FailedAllocation& failed, JsonErrors& errors) {
  ObjectReader object(value, errors);
  read_bytes(object, "bytes", failed.bytes);
  read_phase(object, "phase", failed.phase);
  read_number(object, "step", failed.step);
  read_text(object, "module", failed.module);
  std::int64_t free = 0;
  read_number(object, "device_free", free);
  failed.free = Bytes(free);
  if (const JsonValue* at = value_unless_null(object, "at")) read_place(*at, failed.at, errors);
  if (const JsonValue* stack = value_unless_null(object, "stack")) read_stack(*stack, failed.stack, errors);
  object.finish(UnknownKeys::Ignore);
}

void read_sites(const JsonValue& value, std::vector<AllocationSite>& sites, JsonErrors& errors) {
  read_rows(value, errors, [&](ObjectReader& object) {
    AllocationSite& site = sites.emplace_back();
    read_frame(object, site.frame);
    read_text(object, "framework", site.through);
    read_number(object, "count", site.count);
    read_bytes(object, "bytes", site.bytes);
  });
}

void read_categories(const JsonValue& value, std::vector<PeakCategory>& categories, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object", errors)) return;
  for (const JsonMember& member : value.members) {
    std::int64_t bytes = 0;
    if (read_json(member.value, bytes, errors, kRecordedBytes)) categories.push_back({member.key, Bytes(bytes)});
  }
  std::stable_sort(categories.begin(), categories.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

void read_collectives(const JsonValue& value, std::vector<Collective>& collectives, JsonErrors& errors) {
  read_rows(value, errors, [&](ObjectReader& object) {
    Collective collective{.group = MeshDimension::Other};
    std::optional<CollectiveKind> kind;
    if (const JsonValue* text = object.required_value("kind")) kind = parse_kind(*text, errors);
    object.required("elements", collective.elements, kRecordedCount);
    read_bytes(object, "payload_bytes", collective.payload);
    object.required("group_size", collective.group_size, kRanks);
    std::string dtype;
    read_dtype(object, "dtype", dtype);
    collective.dtype = dtype_of(dtype, collective);
    read_text(object, "unit", collective.unit);
    if (collective.unit == kRoot) collective.unit.clear();
    read_phase(object, "phase", collective.phase);
    if (!kind) return;
    collective.kind = *kind;
    collectives.push_back(std::move(collective));
  });
}

void read_applied(const JsonValue& value, RehearsalRecord& record, JsonErrors& errors) {
  ObjectReader object(value, errors);
  if (const JsonValue* wrappers = value_unless_null(object, "wrappers")) {
    read_rows(*wrappers, errors, [&](ObjectReader& row) { read_wrapper(row, record.seen.wrappers.emplace_back()); });
  }
  read_number(object, "parameters", record.parameters);
  read_number(object, "trainable_parameters", record.trainable_parameters);
  const JsonValue* dtypes = value_unless_null(object, "parameter_dtypes");
  if (dtypes != nullptr && expect_type(*dtypes, JsonType::Object, "an object", errors)) {
    for (const JsonMember& member : dtypes->members) {
      ElementsOfDtype row{.dtype = without_torch(member.key)};
      if (read_json(member.value, row.elements, errors, kRecordedCount))
        record.seen.parameter_dtypes.push_back(std::move(row));
    }
  }
  if (const JsonValue* optimizers = value_unless_null(object, "optimizers")) {
    read_rows(*optimizers, errors, [&](ObjectReader& row) {
      AppliedOptimizer& optimizer = record.seen.optimizers.emplace_back();
      row.required("class", optimizer.class_name);
      read_flag(row, "foreach", optimizer.foreach);
      read_flag(row, "fused", optimizer.fused);
      read_number(row, "parameters", optimizer.parameters);
    });
  }
  object.optional("techniques", record.seen.techniques);
  object.finish(UnknownKeys::Ignore);
}

void read_warnings(const JsonValue& value, std::vector<RehearsalWarning>& warnings, JsonErrors& errors) {
  read_rows(value, errors, [&](ObjectReader& object) {
    RehearsalWarning& warning = warnings.emplace_back();
    object.required("kind", warning.kind);
    object.required("text", warning.text);
    read_text(object, "file", warning.file);
    read_number(object, "line", warning.line);
  });
}

void read_limits(const JsonValue& value, RehearsalLimits& limits, JsonErrors& errors) {
  ObjectReader object(value, errors);
  if (const JsonValue* readbacks = value_unless_null(object, "readbacks")) {
    read_rows(*readbacks, errors, [&](ObjectReader& row) {
      Readback& readback = limits.readbacks.emplace_back();
      read_text(row, "operation", readback.operation);
      read_text(row, "file", readback.file);
      read_number(row, "line", readback.line);
      read_number(row, "count", readback.count);
      read_flag(row, "steers_sizes", readback.steers_sizes);
    });
  }
  object.optional("missing_functions", limits.missing_functions);
  object.optional("allocator_event_queries", limits.allocator_event_queries, kRecordedCount);
  object.optional("cudnn_plans", limits.cudnn_plans, kRecordedCount);
  read_flag(object, "triton", limits.triton);
  read_flag(object, "cuda_graphs", limits.cuda_graphs);
  read_flag(object, "data_dependent_routing", limits.data_dependent_routing);
  object.finish(UnknownKeys::Ignore);
}

}  // namespace fsdp::runs

#include "core/base/written_fields.h"

namespace fsdp {

bool read_json(const JsonValue& value, Seconds& out, JsonErrors& errors, InSeconds /*unused*/) {
  double seconds = 0;
  if (!read_json(value, seconds, errors, RealRange{.min = 0})) return false;
  out = Seconds(seconds);
  return true;
}

std::string schema_of(Seconds /*value*/, InSeconds /*unused*/) {
  return schema_of(0.0, RealRange{.min = 0});
}

bool read_json(const JsonValue& value, double& out, JsonErrors& errors, NullIfNotFinite /*unused*/) {
  out = std::numeric_limits<double>::quiet_NaN();
  if (value.type == JsonType::Null) return true;
  if (!expect_type(value, JsonType::Number, "a number or null", errors)) return false;
  out = value.real;
  return true;
}

std::string schema_of(double /*value*/, NullIfNotFinite /*unused*/) {
  return R"("type": ["number", "null"])";
}

bool read_json(const JsonValue& value, std::string& out, JsonErrors& errors, const OneOf& names) {
  const std::optional<std::size_t> index = read_name(value, names.noun, names.names, errors);
  if (index) out = names.names[*index];
  return index.has_value();
}

std::string schema_of(const std::string& /*value*/, const OneOf& names) {
  return schema_of_names({names.names.begin(), names.names.end()});
}

}  // namespace fsdp

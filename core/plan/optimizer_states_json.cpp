#include "core/plan/optimizer_states_json.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/optimizer_table.h"
#include "core/plan/plan_names.h"

namespace fsdp {

namespace {

constexpr std::string_view kEightBit = "8bit";
constexpr std::array<std::string_view, 3> kSentences = {
    "The dtype of the sharded parameter.", "bfloat16.",
    "In files of earlier versions: the optimizer is adamw_8bit in place of adamw, or adam_8bit in place of adam."};

std::string schema_of_states() {
  std::vector<std::string_view> names = all_names(kOptimizerStatesTable);
  names.push_back(kEightBit);
  return schema_of_names(names, kSentences) + R"(, "default": "as_parameter")";
}

void read_states(const JsonValue& value, Optimizer& optimizer, JsonErrors& errors) {
  if (value.type != JsonType::String || value.text != kEightBit) {
    read_json(value, optimizer.states, errors, kOptimizerStatesTable);
    return;
  }
  const OptimizerRow& row = optimizer_row(optimizer);
  if (row.coded.bits == 8) return;
  if (row.in_8_bits == OptimizerKind::AdamW) {
    errors.add(value, fmt::format("{} has no states in 8 bits.", row.name),
               "Write as_parameter, or adamw_8bit for kind.");
    return;
  }
  use_8_bit_states(optimizer, row.in_8_bits);
}

}  // namespace

void optimizer_states_field(Fields& fields, Optimizer& optimizer) {
  const bool describes = fields.object() == nullptr;
  fields.optional_as("states", "Precision of the moments of PyTorch's optimizers.",
                     describes ? schema_of_states() : std::string(),
                     [&](const JsonValue& value, JsonErrors& errors) { read_states(value, optimizer, errors); });
}

}  // namespace fsdp

#pragma once

// Values that people write: numbers, switches, names. `where` is the place of the text, for errors.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/object_reader.h"
#include "core/base/result.h"
#include "core/plan/runtime.h"

namespace fsdp::render {

inline constexpr std::int64_t kLargestCount = std::int64_t{1} << 31;

/// An integer from `min` to `most`.
Result<std::int64_t> read_count(std::string_view text, std::string_view where, std::int64_t min = 1,
                                std::int64_t most = kLargestCount);
/// An integer from 1; "k" multiplies by 1024, "M" by 1024^2: "8k" is 8192.
Result<std::int64_t> read_length(std::string_view text, std::string_view where);
/// A number above zero.
Result<double> read_number_above_zero(std::string_view text, std::string_view where);
/// "yes", "true" or "on"; "no", "false" or "off".
Result<bool> read_yes_or_no(std::string_view text, std::string_view where);

/// Whether a text is a name. "-" equals "_"; case is ignored.
bool is_same_name(std::string_view text, std::string_view name);
/// "Unknown precision "bf61"." with the nearest of the names.
Error unknown_name(std::string_view text, std::string_view noun, const std::vector<std::string_view>& names,
                   std::string_view where);

/// An enumerator by its name, compared by `is_same_name`.
template <class E>
Result<E> read_name(std::string_view text, const EnumTable<E>& table, std::string_view where) {
  for (const EnumName<E>& entry : table.names) {
    if (is_same_name(text, entry.name)) return entry.value;
  }
  return tl::unexpected(Errors{unknown_name(text, table.noun, all_names(table), where)});
}

/// The framework of a plan. Refuses torch.compile by name.
Result<Framework> read_runtime(std::string_view text, std::string_view where);

}  // namespace fsdp::render

#pragma once

// Values that people write: numbers, switches, names. Each reader is told the place of the text for its error.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/object_reader.h"
#include "core/base/result.h"
#include "core/plan/runtime.h"

namespace fsdp::planner {

inline constexpr std::int64_t kLargestCount = std::int64_t{1} << 31;

/// An integer from `min` to `most`.
Result<std::int64_t> read_count(std::string_view text, std::string_view where, std::int64_t min = 1,
                                std::int64_t most = kLargestCount);
/// An integer from 1, with "k" in 1024s, with "M" in those of 1024: "8k" is 8192.
Result<std::int64_t> read_length(std::string_view text, std::string_view where);
/// A number above zero.
Result<double> read_number_above_zero(std::string_view text, std::string_view where);
/// "yes", "true" or "on"; "no", "false" or "off".
Result<bool> read_yes_or_no(std::string_view text, std::string_view where);

/// Whether a text is a name, where "-" and "_" are the same, and so are large and small letters.
bool is_same_name(std::string_view text, std::string_view name);
/// "Unknown precision "bf61"." with the nearest of the names.
Error unknown_name(std::string_view text, std::string_view noun, const std::vector<std::string_view>& names,
                   std::string_view where);

/// One of the names of an enum, as `is_same_name` has it.
template <class E>
Result<E> read_name(std::string_view text, const EnumTable<E>& table, std::string_view where) {
  for (const EnumName<E>& entry : table.names) {
    if (is_same_name(text, entry.name)) return entry.value;
  }
  return tl::unexpected(Errors{unknown_name(text, table.noun, all_names(table), where)});
}

/// Whose data parallelism is planned. torch.compile is refused by its name.
Result<Framework> read_runtime(std::string_view text, std::string_view where);

}  // namespace fsdp::planner

#include "core/plan/unit_rows.h"

#include <optional>
#include <string_view>
#include <utility>

#include "core/base/name_ranges.h"

namespace fsdp {

namespace {

/// A row of names under construction: nothing yet, one name, or a range.
struct Row {
  std::optional<std::string_view> single;
  std::optional<NameRange> range;

  bool take(std::string_view name) {
    if (range) return extend(*range, name);
    if (single) {
      range = range_of(*single, name);
      return range.has_value();
    }
    single = name;
    return true;
  }
  bool take_all(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (!take(name)) return false;
    }
    return true;
  }
};

/// Where the units from `begin` on stop being one row: each as long as the first (the last may be shorter), with
/// modules that go on counting where the unit before stopped.
std::size_t end_of_row(const std::vector<Unit>& units, std::size_t begin, Row& row) {
  const Unit& first = units[begin];
  std::size_t end = begin + 1;
  if (!row.take_all(first.modules)) return end;
  while (end < units.size()) {
    const Unit& unit = units[end];
    Row longer = row;
    if (unit.modules.empty() || unit.modules.size() > first.modules.size() ||
        unit.reshard_after_forward != first.reshard_after_forward || !longer.take_all(unit.modules)) {
      break;
    }
    row = std::move(longer);
    ++end;
    if (unit.modules.size() < first.modules.size()) break;
  }
  const bool is_worth_it = row.range && (row.range->step == 1 || end - begin >= 3);
  return is_worth_it ? end : begin + 1;
}

}  // namespace

std::vector<UnitRow> fold_units(const std::vector<Unit>& units) {
  std::vector<UnitRow> rows;
  for (std::size_t i = 0; i < units.size();) {
    Row row;
    const std::size_t end = end_of_row(units, i, row);
    UnitRow folded{.modules = {},
                   .count = static_cast<std::int64_t>(end - i),
                   .modules_per_unit = static_cast<std::int64_t>(units[i].modules.size()),
                   .reshard_after_forward = units[i].reshard_after_forward};
    folded.modules = folded.count > 1 ? std::vector{to_string(*row.range)} : fold_names(units[i].modules);
    rows.push_back(std::move(folded));
    i = end;
  }
  return rows;
}

}  // namespace fsdp

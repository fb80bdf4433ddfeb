#pragma once

// Values of options: numbers, switches, choices. Each reader adds its error to a list and goes on.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/object_reader.h"
#include "core/result.h"
#include "core/units.h"
#include "planner/cli_options.h"

namespace fsdp::planner {

class OptionReader {
 public:
  OptionReader(const CommandLine& line, Errors& errors) : line_(line), errors_(errors) {}

  /// An integer from `min` to 2^31.
  std::optional<std::int64_t> count(Option option, std::int64_t min = 1);
  /// The same, or with "k" in 1024s: "8k" is 8192.
  std::optional<std::int64_t> length(Option option);
  /// A number above zero.
  std::optional<double> number(Option option);
  std::optional<Bytes> size(Option option);
  /// "2%" or "0.02": zero or more.
  std::optional<double> share(Option option);
  /// A time above zero: "90s".
  std::optional<Seconds> time(Option option);
  /// "yes" or "no".
  std::optional<bool> yes_or_no(Option option);

  /// One of the names of an enum; "-" and "_" are the same.
  template <class E>
  std::optional<E> choice(Option option, const EnumTable<E>& table) {
    const std::optional<std::string> text = line_.value(option);
    if (!text) return std::nullopt;
    for (const EnumName<E>& entry : table.names) {
      if (is_same_name(*text, entry.name)) return entry.value;
    }
    std::vector<std::string_view> names;
    for (const EnumName<E>& entry : table.names) names.push_back(entry.name);
    fail_choice(option, *text, table.noun, names);
    return std::nullopt;
  }

  /// The value of a result, or its errors on the list.
  template <class T>
  std::optional<T> keep(Result<T> result) {
    if (result) return std::move(*result);
    errors_.insert(errors_.end(), result.error().begin(), result.error().end());
    return std::nullopt;
  }

  void fail(Option option, std::string what, std::string hint = {});

 private:
  static bool is_same_name(std::string_view text, std::string_view name);
  void fail_choice(Option option, std::string_view text, std::string_view noun,
                   const std::vector<std::string_view>& names);

  const CommandLine& line_;
  Errors& errors_;
};

/// An integer written in digits and nothing else, or nothing.
std::optional<std::int64_t> parse_integer(std::string_view text);
/// A finite number, or nothing.
std::optional<double> parse_number(std::string_view text);

}  // namespace fsdp::planner

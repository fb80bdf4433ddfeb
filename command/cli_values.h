#pragma once

// Values of options: numbers, switches, choices. Each reader adds its error to a list and continues.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "command/cli_options.h"
#include "core/base/object_reader.h"
#include "core/base/parse_units.h"
#include "core/base/result.h"
#include "core/base/units.h"
#include "render/read_value.h"

namespace fsdp::command {

class OptionReader {
 public:
  OptionReader(const CommandLine& line, Errors& errors) : line_(line), errors_(errors) {}

  /// An integer from `min` to 2^31.
  std::optional<std::int64_t> count(Option option, std::int64_t min = 1);
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
    return keep(render::read_name(*text, table, flag_of(option)));
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
  const CommandLine& line_;
  Errors& errors_;
};

}  // namespace fsdp::command

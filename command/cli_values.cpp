#include "command/cli_values.h"

#include <fmt/format.h>

#include "core/base/parse_units.h"

namespace fsdp::command {

std::optional<std::int64_t> OptionReader::count(Option option, std::int64_t min) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  return keep(render::read_count(*text, flag_of(option), min));
}

std::optional<double> OptionReader::number(Option option) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  return keep(render::read_number_above_zero(*text, flag_of(option)));
}

std::optional<Bytes> OptionReader::size(Option option) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  return keep(parse_size(*text, flag_of(option)));
}

std::optional<double> OptionReader::share(Option option) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  const bool in_percent = text->ends_with('%');
  const std::optional<double> number = parse_number(text->substr(0, text->size() - (in_percent ? 1 : 0)));
  if (!number || *number < 0) {
    fail(option, fmt::format("\"{}\" is not a percentage or a fraction.", *text), "Write 2% or 0.02.");
    return std::nullopt;
  }
  return in_percent ? *number / 100 : *number;
}

std::optional<Seconds> OptionReader::time(Option option) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  const std::optional<Seconds> time = keep(parse_time(*text, flag_of(option)));
  if (time && *time <= Seconds(0)) fail(option, "It must be above zero.");
  return time;
}

std::optional<bool> OptionReader::yes_or_no(Option option) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  return keep(render::read_yes_or_no(*text, flag_of(option)));
}

void OptionReader::fail(Option option, std::string what, std::string hint) {
  errors_.push_back({std::string(flag_of(option)), std::move(what), std::move(hint)});
}

}  // namespace fsdp::command

#include "text/figures.h"

#include <fmt/format.h>

namespace fsdp::text {

std::string percent(double share) {
  return fmt::format("{:.0f} %", share * 100);
}

std::string grouped(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string counted(std::int64_t count, std::string_view noun) {
  const bool ends_in_ch = noun.ends_with("ch");
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : ends_in_ch ? "es" : "s");
}

}  // namespace fsdp::text

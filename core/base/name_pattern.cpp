#include "core/base/name_pattern.h"

#include <algorithm>
#include <cstddef>

namespace fsdp {
namespace {

// Greedy matching with one point to return to: the last "*" seen. Linear in practice, quadratic at worst.
bool glob(std::string_view pattern, std::string_view name, bool or_module, bool over_dots = true) {
  const auto can_take = [&](char c) { return over_dots || c != '.'; };
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (true) {
    const bool pattern_ended = p == pattern.size();
    if (pattern_ended && (n == name.size() || (or_module && n > 0 && name[n] == '.'))) return true;
    if (!pattern_ended && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (!pattern_ended && n < name.size() &&
               ((pattern[p] == '?' && can_take(name[n])) || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos && resume < name.size() && can_take(name[resume])) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  return glob(pattern, name, true);
}

bool matches_exactly(std::string_view pattern, std::string_view name) {
  return glob(pattern, name, false);
}

bool matches_module(std::string_view pattern, std::string_view name) {
  return glob(pattern, name, false, false);
}

std::string without_numbers(std::string_view name) {
  std::string pattern;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (begin > 0) pattern += '.';
    pattern += is_number ? "*" : part;
    begin = end + 1;
  }
  return pattern;
}

}  // namespace fsdp

#pragma once

// The range of an option with a real number.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

namespace fsdp::executor {

inline constexpr double kAnything = std::numeric_limits<double>::max();

/// A finite number in [least, most], or in [least, most). CLI11 accepts "nan" and "1e400" as numbers.
inline CLI::Validator number_between(double least, double most, bool with_most) {
  return {[=](const std::string& text) {
            char* end = nullptr;
            const double number = std::strtod(text.c_str(), &end);
            const bool is_number = end != text.c_str() && *end == '\0' && std::isfinite(number);
            if (is_number && number >= least && (with_most ? number <= most : number < most)) return std::string();
            return most == kAnything ? fmt::format("{} is not a finite number of at least {}", text, least)
                                     : fmt::format("{} is not in [{}, {}{}", text, least, most, with_most ? "]" : ")");
          },
          ""};
}

}  // namespace fsdp::executor

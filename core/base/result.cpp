#include "core/base/result.h"

#include <fmt/core.h>

#include "core/base/printable.h"

namespace fsdp {

std::string to_string(const Error& error) {
  std::string line = error.where.empty() ? error.what : fmt::format("{}: {}", error.where, error.what);
  if (!error.hint.empty()) line += " " + error.hint;
  return printable(line);
}

}  // namespace fsdp

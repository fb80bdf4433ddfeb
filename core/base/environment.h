#pragma once

// Arguments and variables of the process.

#include <cstdlib>
#include <string>

namespace fsdp {

/// The value of an environment variable. Empty if it is empty or not set.
inline std::string environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// "/first:/rest", as in PYTHONPATH and LD_PRELOAD. Either may be empty.
inline std::string path_list(const std::string& first, const std::string& rest) {
  return first.empty() || rest.empty() ? first + rest : first + ":" + rest;
}

}  // namespace fsdp

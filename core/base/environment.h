#pragma once

// Arguments and variables of the process.

#include <cstdlib>
#include <string>

namespace fsdp {

/// The value of an environment variable. Empty: it is empty, or not set.
inline std::string environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace fsdp

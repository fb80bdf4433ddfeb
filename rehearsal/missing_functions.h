#pragma once

// The functions that a program called although the stub does not have them.

#include <string>
#include <string_view>

namespace fsdp::rehearsal {

/// Stores one name. The function itself returns its library's "not supported".
void note_missing(std::string_view function);

/// The names so far, sorted, separated by newlines.
std::string missing_functions();

}  // namespace fsdp::rehearsal

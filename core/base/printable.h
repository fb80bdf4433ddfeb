#pragma once

// Makes text from a file safe for a terminal.

#include <string>
#include <string_view>

namespace fsdp {

/// Escapes everything that a terminal would obey rather than show: control characters ("\x1b"), invalid text ("\xff",
/// "\uffff"), and marks that change the direction of writing ("\u202e"). Tabs and line feeds stay.
std::string printable(std::string_view text);

}  // namespace fsdp

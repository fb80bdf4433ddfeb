#pragma once

// Text that came from a file, made fit for a terminal.

#include <string>
#include <string_view>

namespace fsdp {

/// The text with everything escaped that a terminal would obey rather than show: control characters ("\x1b"), what
/// is no text ("\xff", "\uffff"), and marks that turn the direction of writing ("\u202e"). Tabs and line feeds stay.
std::string printable(std::string_view text);

}  // namespace fsdp

#pragma once

// Figures as the command line writes them, for all of the window.

#include <QString>
#include <string>

#include "core/base/units.h"

namespace fsdp::gui {

QString text_of(const std::string& text);
QString text_of(Bytes bytes);          ///< "14.9 GiB"; below 0 with a minus sign.
QString text_of(Seconds time);         ///< "12.5 ms".
QString signed_text_of(Bytes bytes);   ///< "+1.20 GiB", "0 B".
QString signed_text_of(Seconds time);  ///< "+12.5 ms".

}  // namespace fsdp::gui

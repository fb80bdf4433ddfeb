#include "gui/theme/figure_text.h"

#include "core/base/parse_units.h"

namespace fsdp::gui {

namespace {

constexpr QChar kMinus(0x2212);

template <class Quantity>
QString with_plus(Quantity value) {
  return (value > Quantity(0) ? QStringLiteral("+") : QString()) + text_of(value);
}

}  // namespace

QString text_of(const std::string& text) {
  return QString::fromStdString(text);
}
QString text_of(Bytes bytes) {
  return bytes < Bytes(0) ? kMinus + text_of(-bytes) : text_of(format_bytes(bytes));
}
QString text_of(Seconds time) {
  return time < Seconds(0) ? kMinus + text_of(-time) : text_of(format_time(time));
}
QString signed_text_of(Bytes bytes) {
  return with_plus(bytes);
}
QString signed_text_of(Seconds time) {
  return with_plus(time);
}

}  // namespace fsdp::gui

#include "gui/charts/time_range.h"

#include <QElapsedTimer>

#include <algorithm>

namespace fsdp::gui {

namespace {

constexpr std::size_t kMostUndone = 100;
constexpr qint64 kOneGesture = 500;  // Milliseconds.

qint64 now() {
  static const QElapsedTimer timer = [] {
    QElapsedTimer started;
    started.start();
    return started;
  }();
  return timer.elapsed();
}

}  // namespace

void TimeRange::set_full(const ValueRange& full) {
  if (full == full_) return;
  const double scale = full_.width() > 0 ? full.width() / full_.width() : 1;
  const auto moved = [&](const ValueRange& range) {
    return ValueRange{full.begin + (range.begin - full_.begin) * scale, full.begin + (range.end - full_.begin) * scale};
  };
  const bool was_whole = is_whole();
  const ValueRange visible = was_whole ? full : clamped(moved(visible_), full, full.width() * 1e-6);
  for (ValueRange& range : before_) range = clamped(moved(range), full, full.width() * 1e-6);
  full_ = full;
  selection_.reset();
  apply(visible);
  emit selection_changed();
}

void TimeRange::show(const ValueRange& visible) {
  const ValueRange next = clamped(visible, full_, narrowest());
  if (next == visible_) return;
  if (before_.empty() || now() - last_change_ > kOneGesture) before_.push_back(visible_);
  if (before_.size() > kMostUndone) before_.erase(before_.begin());
  last_change_ = now();
  apply(next);
}

void TimeRange::zoom(double factor, double at) {
  show(zoomed(visible_, factor, at, full_, narrowest()));
}

void TimeRange::pan(double distance) {
  show(panned(visible_, distance, full_));
}

void TimeRange::show_selection() {
  if (!selection_ || !(selection_->width() > 0)) return;
  last_change_ = 0;  // The next change is a step of its own.
  show(*selection_);
}

void TimeRange::undo() {
  if (before_.empty()) return;
  const ValueRange last = before_.back();
  before_.pop_back();
  apply(last);
}

void TimeRange::apply(const ValueRange& visible) {
  visible_ = visible;
  emit changed();
}

void TimeRange::select(const std::optional<ValueRange>& selection) {
  if (selection == selection_) return;
  selection_ = selection;
  emit selection_changed();
}

void TimeRange::point(const std::optional<double>& pointer) {
  if (pointer == pointer_) return;
  pointer_ = pointer;
  emit pointer_changed();
}

}  // namespace fsdp::gui

#pragma once

// Colors of the window and of the charts, light and dark.
//
// Hues follow Okabe and Ito, "Color Universal Design" (2008), which people with any common kind of color vision can
// tell apart. Categories that are communication buffers are also hatched, and no meaning depends on color alone.

#include <QColor>
#include <QPalette>
#include <QWidget>
#include <array>
#include <cstdint>

#include "core/report/report.h"

namespace fsdp::gui {

enum class ThemeChoice : std::uint8_t { System, Light, Dark };

/// Lanes of the stream chart, in its order.
enum class Lane : std::uint8_t { Compute, AllGather, ReduceScatter, AllReduce, Copy };
inline constexpr int kNumLanes = static_cast<int>(Lane::Copy) + 1;

struct Theme {
  bool is_dark = false;
  QColor background;  ///< Background of charts and lists.
  QColor panel;       ///< Background of everything around them.
  QColor text;
  QColor text_weak;  ///< Units, hints, axis labels.
  QColor grid;
  QColor accent;  ///< Selection, the current plan.
  QColor good;    ///< Fits, less.
  QColor bad;     ///< Does not fit, more.
  QColor warn;
  QColor measured;  ///< Outline of measurements.
  QColor baseline;  ///< Outline of the pinned baseline.
  std::array<QColor, kNumMemoryCategories> category;
  std::array<bool, kNumMemoryCategories> is_hatched{};
  std::array<QColor, kNumLanes> lane;

  bool operator==(const Theme&) const = default;
};

Theme light_theme();
Theme dark_theme();

/// The theme of a choice; `System` follows the lightness of the platform's palette.
Theme theme_of(ThemeChoice choice, const QPalette& platform);

/// Whether its text is lighter than its windows.
bool is_dark(const QPalette& palette);

/// The background of an error message.
QColor problem_ground(const QPalette& palette);

/// Sets the color of a widget's text.
void set_text_color(QWidget& widget, const QColor& color);

/// The palette of Fusion that belongs to a theme.
QPalette palette_of(const Theme& theme);

}  // namespace fsdp::gui

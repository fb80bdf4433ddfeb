#include "gui/theme/theme.h"

namespace fsdp::gui {

namespace {

std::array<bool, kNumMemoryCategories> hatched() {
  std::array<bool, kNumMemoryCategories> flags{};
  for (const MemoryCategory category : {MemoryCategory::AllGather, MemoryCategory::ReduceScatter}) {
    flags[static_cast<std::size_t>(category)] = true;
  }
  return flags;
}

}  // namespace

Theme light_theme() {
  Theme theme;
  theme.background = QColor(0xff, 0xff, 0xff);
  theme.panel = QColor(0xf3, 0xf4, 0xf6);
  theme.text = QColor(0x1c, 0x21, 0x28);
  theme.text_weak = QColor(0x59, 0x63, 0x6e);
  theme.grid = QColor(0xdd, 0xe1, 0xe6);
  theme.accent = QColor(0x00, 0x62, 0xa3);
  theme.good = QColor(0x00, 0x70, 0x54);
  theme.bad = QColor(0xb4, 0x3c, 0x00);
  theme.warn = QColor(0x8a, 0x5d, 0x00);
  theme.measured = QColor(0x1c, 0x21, 0x28);
  theme.baseline = QColor(0x7a, 0x3e, 0x8e);
  // Sharded Param, Unsharded Param, Buffer, Sharded Grad, Unsharded Grad, Activation, Temp, All Gather,
  // Reduce Scatter, OptState, Inputs.
  theme.category = {QColor(0x00, 0x72, 0xb2), QColor(0x56, 0xb4, 0xe9), QColor(0x8c, 0x95, 0x9f),
                    QColor(0x00, 0x9e, 0x73), QColor(0x7f, 0xd1, 0xb6), QColor(0xe6, 0x9f, 0x00),
                    QColor(0xf0, 0xe4, 0x42), QColor(0x9c, 0xcf, 0xf0), QColor(0xe8, 0xb0, 0xcf),
                    QColor(0xcc, 0x79, 0xa7), QColor(0xc4, 0xca, 0xd1)};
  theme.is_hatched = hatched();
  theme.lane = {QColor(0x00, 0x72, 0xb2), QColor(0x56, 0xb4, 0xe9), QColor(0xcc, 0x79, 0xa7), QColor(0xe6, 0x9f, 0x00),
                QColor(0x00, 0x9e, 0x73)};
  return theme;
}

Theme dark_theme() {
  Theme theme;
  theme.is_dark = true;
  theme.background = QColor(0x16, 0x1a, 0x20);
  theme.panel = QColor(0x20, 0x25, 0x2d);
  theme.text = QColor(0xe6, 0xea, 0xef);
  theme.text_weak = QColor(0x9d, 0xa7, 0xb3);
  theme.grid = QColor(0x33, 0x3b, 0x45);
  theme.accent = QColor(0x56, 0xb4, 0xe9);
  theme.good = QColor(0x3c, 0xc7, 0x9b);
  theme.bad = QColor(0xff, 0x8a, 0x4c);
  theme.warn = QColor(0xe6, 0xb4, 0x2e);
  theme.measured = QColor(0xe6, 0xea, 0xef);
  theme.baseline = QColor(0xd3, 0x9b, 0xe6);
  theme.category = {QColor(0x1f, 0x86, 0xc4), QColor(0x56, 0xb4, 0xe9), QColor(0x7d, 0x87, 0x92),
                    QColor(0x00, 0x9e, 0x73), QColor(0x66, 0xbf, 0xa3), QColor(0xdb, 0x98, 0x05),
                    QColor(0xd9, 0xcd, 0x45), QColor(0x84, 0xb7, 0xd9), QColor(0xcf, 0x97, 0xb6),
                    QColor(0xc0, 0x6d, 0x9b), QColor(0x99, 0xa1, 0xab)};
  theme.is_hatched = hatched();
  theme.lane = {QColor(0x1f, 0x86, 0xc4), QColor(0x56, 0xb4, 0xe9), QColor(0xc0, 0x6d, 0x9b), QColor(0xdb, 0x98, 0x05),
                QColor(0x00, 0x9e, 0x73)};
  return theme;
}

Theme theme_of(ThemeChoice choice, const QPalette& platform) {
  if (choice == ThemeChoice::Light) return light_theme();
  if (choice == ThemeChoice::Dark) return dark_theme();
  return is_dark(platform) ? dark_theme() : light_theme();
}

bool is_dark(const QPalette& palette) {
  return palette.color(QPalette::Window).lightness() < palette.color(QPalette::WindowText).lightness();
}

QColor problem_ground(const QPalette& palette) {
  return is_dark(palette) ? QColor(0x4a, 0x28, 0x12) : QColor(0xff, 0xee, 0xe0);
}

void set_text_color(QWidget& widget, const QColor& color) {
  QPalette palette = widget.palette();
  if (palette.color(QPalette::WindowText) == color) return;
  palette.setColor(QPalette::WindowText, color);
  palette.setColor(QPalette::ButtonText, color);
  widget.setPalette(palette);
}

QPalette palette_of(const Theme& theme) {
  QPalette palette;
  palette.setColor(QPalette::Window, theme.panel);
  palette.setColor(QPalette::WindowText, theme.text);
  palette.setColor(QPalette::Base, theme.background);
  palette.setColor(QPalette::AlternateBase, theme.panel);
  palette.setColor(QPalette::Text, theme.text);
  palette.setColor(QPalette::PlaceholderText, theme.text_weak);
  palette.setColor(QPalette::Button, theme.panel);
  palette.setColor(QPalette::ButtonText, theme.text);
  palette.setColor(QPalette::BrightText, theme.bad);
  palette.setColor(QPalette::Light, theme.is_dark ? theme.panel.lighter(140) : theme.background);
  palette.setColor(QPalette::Midlight, theme.is_dark ? theme.panel.lighter(120) : theme.panel.lighter(103));
  palette.setColor(QPalette::Mid, theme.grid);
  palette.setColor(QPalette::Dark, theme.is_dark ? theme.background : theme.grid.darker(120));
  palette.setColor(QPalette::Shadow, theme.is_dark ? QColor(Qt::black) : theme.text_weak);
  palette.setColor(QPalette::ToolTipBase, theme.background);
  palette.setColor(QPalette::ToolTipText, theme.text);
  palette.setColor(QPalette::Link, theme.accent);
  palette.setColor(QPalette::LinkVisited, theme.accent);
  palette.setColor(QPalette::Highlight, theme.accent);
  palette.setColor(QPalette::HighlightedText, theme.background);
  for (const QPalette::ColorRole role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText}) {
    palette.setColor(QPalette::Disabled, role, theme.text_weak);
  }
  palette.setColor(QPalette::Disabled, QPalette::Highlight, theme.grid);
  return palette;
}

}  // namespace fsdp::gui

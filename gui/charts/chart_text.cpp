#include "gui/charts/chart_text.h"

#include <algorithm>
#include <numeric>

namespace fsdp::gui {

std::vector<PlacedLabel> place_labels(const std::vector<WantedLabel>& wanted, double left, double right, double gap) {
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return wanted[a].priority > wanted[b].priority; });
  std::vector<PlacedLabel> placed;
  for (const std::size_t i : order) {
    const WantedLabel& label = wanted[i];
    if (label.width > right - left) continue;
    const double begin = std::clamp(label.at - label.width / 2, left, right - label.width);
    const bool is_free = std::none_of(placed.begin(), placed.end(), [&](const PlacedLabel& other) {
      return begin < other.left + wanted[other.index].width + gap && other.left < begin + label.width + gap;
    });
    if (is_free) placed.push_back({i, begin});
  }
  std::sort(placed.begin(), placed.end(), [](const PlacedLabel& a, const PlacedLabel& b) { return a.left < b.left; });
  return placed;
}

std::string shortened_name(const std::string& name, std::size_t most) {
  if (name.size() <= most) return name;
  if (most < 4) return name.substr(name.size() - most);
  const std::size_t head = (most - 1) / 3;
  return name.substr(0, head) + "…" + name.substr(name.size() - (most - 1 - head));
}

}  // namespace fsdp::gui

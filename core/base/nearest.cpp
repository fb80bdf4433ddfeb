// The similarity of two names.
//
// Three slips explain most wrong names: an extra, missing, wrong or swapped letter ("gpsu"); other separators or case
// ("RTX-4090", "rtx4090"); and a shortened name ("a100" for "A100 80GB SXM"). So names are first reduced by
// without_separators (lower case, no separators), then compared by the number of edits (Damerau's four kinds, in the
// variant that edits no letter twice); one edit in three letters is near enough. If that finds nothing, names that
// start alike or share many letter pairs (Jaccard >= 0.4) are near, too: "prefetch-forward" for "forward-prefetch".
//
// Sources: F. J. Damerau, "A technique for computer detection and correction of spelling errors", CACM 1964. The share
// of common n-grams as the measure for longer names is that of ripgrep's suggestions for flags.

#include "core/base/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

namespace fsdp {

namespace {

// Longer names are not slips of ours, and the comparison is quadratic.
constexpr std::size_t kLongestName = 128;
constexpr std::size_t kMostListed = 24;
constexpr double kLikeEnough = 0.4;

std::string without_separators(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({changed, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::vector<std::uint16_t> letter_pairs(std::string_view name) {
  std::vector<std::uint16_t> pairs;
  for (std::size_t i = 0; i + 1 < name.size(); ++i) {
    const auto first = static_cast<unsigned char>(name[i]);
    const auto second = static_cast<unsigned char>(name[i + 1]);
    pairs.push_back(static_cast<std::uint16_t>(first << 8 | second));
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

double likeness(std::string_view a, std::string_view b) {
  if (a.size() >= 2 && b.starts_with(a)) return 1;
  const std::vector<std::uint16_t> pairs_a = letter_pairs(a);
  const std::vector<std::uint16_t> pairs_b = letter_pairs(b);
  std::vector<std::uint16_t> common;
  std::set_intersection(pairs_a.begin(), pairs_a.end(), pairs_b.begin(), pairs_b.end(), std::back_inserter(common));
  const std::size_t all = pairs_a.size() + pairs_b.size() - common.size();
  return all == 0 ? 0 : static_cast<double>(common.size()) / static_cast<double>(all);
}

std::optional<std::size_t> nearest_index(std::string_view given, std::span<const std::string_view> candidates) {
  if (given.empty() || given.size() > kLongestName) return std::nullopt;
  const std::string wanted = without_separators(given);
  std::optional<std::size_t> best;
  std::size_t fewest = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  double likest = 0;
  std::optional<std::size_t> alike;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].size() > kLongestName) continue;
    const std::string candidate = without_separators(candidates[i]);
    // With an edit per letter, any short name would be near any other.
    const std::size_t distance = edits(wanted, candidate);
    if (distance < fewest && distance < std::max(wanted.size(), candidate.size())) {
      fewest = distance;
      best = i;
    }
    const double like = likeness(wanted, candidate);
    if (like >= kLikeEnough && like > likest) {
      likest = like;
      alike = i;
    }
  }
  return best ? best : alike;
}

std::vector<std::string_view> views(std::span<const std::string> names) {
  return std::vector<std::string_view>(names.begin(), names.end());
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view given, std::span<const std::string_view> candidates) {
  const std::optional<std::size_t> index = nearest_index(given, candidates);
  if (!index) return std::nullopt;
  return std::string(candidates[*index]);
}

std::optional<std::string> nearest_name(std::string_view given, std::span<const std::string> candidates) {
  return nearest_name(given, std::span<const std::string_view>(views(candidates)));
}

std::string suggest_name(std::string_view given, std::span<const std::string_view> candidates) {
  if (const auto nearest = nearest_name(given, candidates)) return fmt::format("Did you mean \"{}\"?", *nearest);
  if (candidates.empty()) return {};
  if (candidates.size() <= kMostListed) return fmt::format("Known are {}.", join_names(candidates));
  const std::string listed = join_names(candidates.first(kMostListed), ", ");
  return fmt::format("Known are {} and {} more.", listed, candidates.size() - kMostListed);
}

std::string suggest_name(std::string_view given, std::span<const std::string> candidates) {
  return suggest_name(given, std::span<const std::string_view>(views(candidates)));
}

std::string join_names(std::span<const std::string_view> names, std::string_view last_separator) {
  std::string joined;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) joined += i + 1 == names.size() ? last_separator : std::string_view(", ");
    joined += names[i];
  }
  return joined;
}

}  // namespace fsdp

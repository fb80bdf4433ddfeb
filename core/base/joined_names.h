#pragma once

// The names of a table as one text, made at compile time for tables of texts.

#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace fsdp {

/// The number of characters of JoinedNames.
template <class Entries>
constexpr std::size_t joined_size(const Entries& entries, std::string_view before, std::string_view between,
                                  std::string_view after) {
  std::size_t size = before.size() + after.size() + (std::size(entries) - 1) * between.size();
  for (const auto& entry : entries) size += entry.name.size();
  return size;
}

/// `kBefore`, the names of a table of EnumNames with `kBetween` between them, `kAfter`. All are named objects, as C++
/// requires of template arguments.
template <const auto& kEntries, const std::string_view& kBefore, const std::string_view& kBetween,
          const std::string_view& kAfter>
class JoinedNames {
 public:
  static constexpr std::string_view text() { return {kCharacters.data(), kCharacters.size()}; }

 private:
  static constexpr std::size_t kSize = joined_size(kEntries, kBefore, kBetween, kAfter);
  static constexpr std::array<char, kSize> make() {
    std::array<char, kSize> characters{};
    std::size_t end = 0;
    const auto add = [&](std::string_view text) {
      for (const char c : text) characters[end++] = c;
    };
    add(kBefore);
    for (std::size_t i = 0; i < std::size(kEntries); ++i) {
      if (i > 0) add(kBetween);
      add(kEntries[i].name);
    }
    add(kAfter);
    return characters;
  }
  static constexpr std::array<char, kSize> kCharacters = make();
};

}  // namespace fsdp

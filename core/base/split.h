#pragma once

// A list in one text: "0,5", "L4,A10G".

#include <algorithm>
#include <string_view>
#include <vector>

namespace fsdp {

/// The parts between the separators, one more than there are separators; parts may be empty. Views of `text`.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace fsdp

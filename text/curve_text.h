#pragma once

// The memory of one step as a picture of block characters.

#include <array>
#include <string>
#include <vector>

#include "core/report/report.h"

namespace fsdp::text {

inline constexpr int kCurveIndent = 12;  ///< Indent of the lines of a curve in a report. Labels take at most 10
                                         ///< columns.
inline constexpr int kMostColumns = 96;  ///< The most columns of a curve, for any width of the terminal.
inline constexpr int kEighths = 8;       ///< Eighths of a character, which kBlocks can show.
inline constexpr std::array kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

/// Live bytes over the step as lines of at most `width` columns: `height` rows of blocks with the highest value next to
/// the first, then a line with the phases. Empty if the report has no curve. Each column shows the highest of its
/// values, so that a short peak stays visible.
std::vector<std::string> memory_curve(const MemoryReport& memory, int width, int height = 4);

}  // namespace fsdp::text

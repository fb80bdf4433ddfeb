// The table of nccl-tests, a line for each size:
//
//   #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw
//   #wrong
//       33554432       8388608     float     sum      -1   171.88  195.22  292.83      0   173.28  193.64  290.46 0
//
// Old versions leave the operation empty for all-gather and have no root; some print no in-place half, or N/A in it. So
// a line of the table begins with two integers and the name of a type; after words and a root come four or eight
// figures, the first of which is the time in microseconds. Prefixes of schedulers ("node3: ", "[1,0]<stdout>:") are
// dropped.
//
// Sources: nccl-tests, src/common.cu (writeBenchmarkLineBody and its predecessors), doc/PERFORMANCE.md for the size.

#include "core/formats/nccl_tests_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/base/parse_units.h"
#include "core/base/printable.h"

namespace fsdp {

namespace {

constexpr std::array<std::string_view, 5> kCollectives = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                                          "alltoall"};

bool is_type(std::string_view word) {
  constexpr std::array<std::string_view, 12> kTypes = {"int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
                                                       "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
  return std::find(kTypes.begin(), kTypes.end(), word) != kTypes.end();
}

std::vector<std::string_view> words_of_line(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t begin = line.find_first_not_of(" \t\r", i);
    if (begin == std::string_view::npos) break;
    i = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, i - begin));
  }
  return words;
}

/// The words of a line of the table from its size on; empty for other lines.
std::vector<std::string_view> words_of_row(std::string_view line) {
  std::vector<std::string_view> words = words_of_line(line);
  for (std::size_t i = 2; i < words.size(); ++i) {
    if (!is_type(words[i])) continue;
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i) - 2);
    // A scheduler's mark may touch the size.
    words[0] = words[0].substr(words[0].find_last_of(":>") + 1);
    return parse_integer(words[0]) && parse_integer(words[1]) ? words : std::vector<std::string_view>();
  }
  return {};
}

std::optional<NcclTestsRow> read_row(const std::vector<std::string_view>& words) {
  std::size_t first = 3;
  while (first < words.size() && std::isalpha(static_cast<unsigned char>(words[first][0])) != 0 &&
         words[first] != "N/A") {
    ++first;
  }
  if ((words.size() - first) % 4 == 1) ++first;  // The root.
  if (words.size() - first != 4 && words.size() - first != 8) return std::nullopt;
  const std::optional<std::int64_t> bytes = parse_integer(words[0]);
  const std::optional<double> time = parse_number(words[first]);
  if (!bytes || !time || *bytes < 0 || *time < 0) return std::nullopt;
  return NcclTestsRow{*bytes, Seconds(1e-6 * *time)};
}

/// "# Collective test starting: all_gather_perf", or the typed command.
void read_remark(std::string_view line, NcclTestsLog& log) {
  for (const std::string_view name : kCollectives) {
    if (line.find(fmt::format("{}_perf", name)) != std::string_view::npos) log.collective = std::string(name);
  }
  const std::vector<std::string_view> words = words_of_line(line);
  const auto rank = std::find(words.begin(), words.end(), "Rank");
  if (rank == words.end() || rank == words.begin() || rank + 1 == words.end() || !rank[-1].ends_with("#")) return;
  const std::optional<std::int64_t> number = parse_integer(rank[1]);
  if (number && *number >= 0 && *number < 1'000'000) {
    log.ranks = std::max(log.ranks.value_or(0), static_cast<int>(*number) + 1);
  }
}

}  // namespace

Result<NcclTestsLog> read_nccl_tests_log(std::string_view text, const std::string& name) {
  NcclTestsLog log;
  Errors errors;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const std::vector<std::string_view> words = words_of_row(line);
    if (words.empty()) {
      read_remark(line, log);
      continue;
    }
    const std::optional<NcclTestsRow> row = read_row(words);
    // The test prints a size of 0 for a rank without a part: nothing was sent.
    if (row && row->bytes > 0) log.rows.push_back(*row);
    if (!row) {
      errors.push_back({fmt::format("{}:{}", name, number),
                        fmt::format("This line of the table cannot be read: {}.", printable(std::string(line))),
                        "Write size, count, type, redop, root, then time, algbw, busbw and #wrong, once or twice."});
    }
  }
  if (errors.size() > 5) {
    const std::size_t more = errors.size() - 5;
    errors.resize(5);
    errors.push_back({name, fmt::format("{} more lines of the table cannot be read.", more), ""});
  }
  if (errors.empty() && log.rows.empty()) {
    errors.push_back({name, "There is no line of a table of nccl-tests.",
                      "Such a line begins with a size in bytes, a count and a type: 1048576 262144 float ..."});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return log;
}

}  // namespace fsdp

#pragma once

// The output of nccl-tests (all_gather_perf and its siblings): the measured times.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"

namespace fsdp {

/// One line of the table, out of place.
struct NcclTestsRow {
  std::int64_t bytes = 0;  ///< Size of the whole buffer.
  Seconds time{0};

  bool operator==(const NcclTestsRow&) const = default;
};

struct NcclTestsLog {
  std::string collective;          ///< "all_gather" if the log names it; otherwise empty.
  std::optional<int> ranks;        ///< `nullopt` if the log does not list them.
  std::vector<NcclTestsRow> rows;  ///< In the order of the log.

  bool operator==(const NcclTestsLog&) const = default;
};

/// Reads a log; `name` is the place in errors. Skips lines outside the table, because jobs print more than the test
/// does. Error: each unreadable line of the table; a log without a table.
Result<NcclTestsLog> read_nccl_tests_log(std::string_view text, const std::string& name);

}  // namespace fsdp

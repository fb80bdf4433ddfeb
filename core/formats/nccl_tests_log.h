#pragma once

// The output of nccl-tests (all_gather_perf and its kin): the times that it measured.

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
  std::string collective;          ///< "all_gather", where the log says it; else empty.
  std::optional<int> ranks;        ///< Where the log lists them.
  std::vector<NcclTestsRow> rows;  ///< In the order of the log.

  bool operator==(const NcclTestsLog&) const = default;
};

/// Reads a log; `name` is put before errors. Lines that are neither the table's nor remarks are passed over: jobs
/// print more than the test does. Error: lines of the table that cannot be read, each; no line of a table.
Result<NcclTestsLog> read_nccl_tests_log(std::string_view text, const std::string& name);

}  // namespace fsdp

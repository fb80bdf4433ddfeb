#pragma once

// Published times of collectives, as tests/golden/nccl/*.csv have them: columns by their names, among them `table`,
// `collective`, `bytes` and `time_us`.

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/base/split.h"
#include "core/base/units.h"
#include "core/report/report.h"

namespace fsdp::simulator {

struct MeasuredTime {
  std::map<std::string, std::string> columns;
  CollectiveKind kind = CollectiveKind::AllGather;
  Bytes bytes;
  Seconds time{0};
};

inline std::vector<MeasuredTime> read_measured_times(const std::string& path) {
  std::vector<MeasuredTime> times;
  std::ifstream file(path);
  std::string names, line;
  std::getline(file, names);
  while (std::getline(file, line)) {
    MeasuredTime row;
    const auto keys = split(names, ',');
    const auto values = split(line, ',');
    for (std::size_t i = 0; i < keys.size(); ++i) row.columns.emplace(keys[i], values.at(i));
    for (const CollectiveKind kind : {CollectiveKind::ReduceScatter, CollectiveKind::AllReduce}) {
      if (row.columns.at("collective") == name_of(kind)) row.kind = kind;
    }
    row.bytes = Bytes(std::stoll(row.columns.at("bytes")));
    row.time = Seconds(1e-6 * std::stod(row.columns.at("time_us")));
    times.push_back(std::move(row));
  }
  return times;
}

inline std::map<std::string, std::vector<MeasuredTime>> read_measured_tables(const std::string& path) {
  std::map<std::string, std::vector<MeasuredTime>> tables;
  for (MeasuredTime& row : read_measured_times(path)) {
    std::vector<MeasuredTime>& table = tables[row.columns.at("table")];
    table.push_back(std::move(row));
  }
  return tables;
}

/// Mean of |ratio - 1|, of predicted over measured times.
inline double mean_error(const std::vector<double>& ratios) {
  double sum = 0;
  for (const double ratio : ratios) sum += std::abs(ratio - 1);
  return sum / static_cast<double>(ratios.size());
}

}  // namespace fsdp::simulator

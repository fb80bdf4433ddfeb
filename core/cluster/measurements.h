#pragma once

// Published measurements of a kind of GPU: collectives of one node, matrix products, fused attention. Files of
// `model_specs/clusters/measured/`, which scripts/distil_measurements makes; the format is that of
// `model_specs/schemas/measurements.schema.json`.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/base/units.h"
#include "core/cluster/intra_link.h"

namespace fsdp {

/// The collective of a table.
enum class MeasuredCollective { AllGather, ReduceScatter, AllReduce };

/// Times of one collective among GPUs of one node.
struct MeasuredTimes {
  MeasuredCollective collective = MeasuredCollective::AllGather;
  int gpus = 0;
  std::vector<double> microseconds;  ///< [sizes]

  bool operator==(const MeasuredTimes&) const = default;
};

/// Collectives of one node, out of place, as nccl-tests measures them.
struct MeasuredCollectives {
  std::string table;    ///< Its place in the package.
  std::string library;  ///< "NCCL 2.29.2".
  IntraLink link = IntraLink::NvSwitch;
  BytesPerSecond bandwidth{};       ///< Nominal, of one GPU, per direction.
  std::vector<std::int64_t> bytes;  ///< [sizes] Of the whole buffer, ascending.
  std::vector<MeasuredTimes> times;

  bool operator==(const MeasuredCollectives&) const = default;
};

/// The error of the interpolation on measured shapes outside of the grid: |measured / interpolated - 1|.
struct HeldBack {
  int shapes = 0;
  double median = 0;
  double p90 = 0;  ///< The 90th percentile.

  bool operator==(const HeldBack&) const = default;
};

/// Products of a (m, k) and a (k, n) matrix: their share of the peak rate, on a grid.
struct MeasuredProducts {
  std::string table;
  std::string dtype;  ///< "bf16"
  FlopsPerSecond peak{};
  std::vector<std::int64_t> m, n, k;  ///< The axes, ascending.
  std::vector<double> share;          ///< [m, n, k]
  double large = 1;                   ///< Median share of products with m >= 2048 and n, k >= 1024.
  HeldBack held_back;

  bool operator==(const MeasuredProducts&) const = default;
};

/// Forward passes of fused attention with one head size and mask: their share of the peak rate, on a grid.
struct MeasuredAttention {
  std::string table;
  std::vector<std::string> kernels;
  bool causal = true;
  int head_size = 0;
  FlopsPerSecond peak{};
  std::vector<std::int64_t> heads;     ///< Axis: heads times batch, ascending.
  std::vector<std::int64_t> sequence;  ///< Axis: number of queries, which equals that of keys, ascending.
  std::vector<double> share;           ///< [heads, sequence] Counts half of the operations under a causal mask.
  HeldBack held_back;

  bool operator==(const MeasuredAttention&) const = default;
};

/// One file.
struct Measurements {
  std::vector<std::string> gpus;  ///< Names of the cards of the tables.
  std::string package;            ///< "aiconfigurator-core 0.12.0"
  std::string license;
  std::string copyright;
  std::optional<MeasuredCollectives> collectives;
  std::optional<MeasuredProducts> products;
  std::vector<MeasuredAttention> attention;

  bool operator==(const Measurements&) const = default;
};

/// The measurements of a card, shared by its copies; compared by content.
class MeasuredCard {
 public:
  MeasuredCard() = default;
  explicit MeasuredCard(std::shared_ptr<const Measurements> tables) : tables_(std::move(tables)) {}

  /// Null if nobody measured the card.
  const Measurements* get() const { return tables_.get(); }
  bool operator==(const MeasuredCard& other) const {
    if (tables_ == other.tables_) return true;
    return tables_ != nullptr && other.tables_ != nullptr && *tables_ == *other.tables_;
  }

 private:
  std::shared_ptr<const Measurements> tables_;
};

/// Reads a file. Error: all its faults, including tables whose sizes do not match.
Result<Measurements> read_measurements(const JsonDocument& document);

/// The JSON Schema, as `fsdp-plan schema measurements` prints it.
std::string measurements_schema();

/// The share of the peak rate of a product: linear in the logarithms between the shapes of the grid, and that of the
/// edge outside. REQUIRES: positive sizes.
double measured_share(const MeasuredProducts& products, double m, double n, double k);

/// The same for attention over heads x batch and queries.
double measured_share(const MeasuredAttention& attention, double heads, double sequence);

/// The time of a collective with `bytes` in total: log-log between the measured sizes. `nullopt` outside of them, or if
/// no such group was measured.
std::optional<Seconds> measured_time(const MeasuredCollectives& tables, MeasuredCollective collective, int gpus,
                                     std::int64_t bytes);

}  // namespace fsdp

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

/// Which collective a table is of.
enum class MeasuredCollective { AllGather, ReduceScatter, AllReduce };

/// Times of one collective among some GPUs of one node.
struct MeasuredTimes {
  MeasuredCollective collective = MeasuredCollective::AllGather;
  int gpus = 0;
  std::vector<double> microseconds;  ///< [sizes]

  bool operator==(const MeasuredTimes&) const = default;
};

/// Collectives of one node, out of place, as nccl-tests measures them.
struct MeasuredCollectives {
  std::string table;    ///< Where it stands in the package.
  std::string library;  ///< "NCCL 2.29.2".
  IntraLink link = IntraLink::NvSwitch;
  BytesPerSecond bandwidth{};       ///< Nominal, of one GPU, per direction.
  std::vector<std::int64_t> bytes;  ///< [sizes] Of the whole buffer, rising.
  std::vector<MeasuredTimes> times;

  bool operator==(const MeasuredCollectives&) const = default;
};

/// How wrong the interpolation is on shapes that were measured but left out of the grid: |measured / interpolated - 1|.
struct HeldBack {
  int shapes = 0;
  double median = 0;
  double p90 = 0;  ///< Nine of ten are better.

  bool operator==(const HeldBack&) const = default;
};

/// Products of a (m, k) and a (k, n) matrix: the share of the peak rate that they reach, on a grid.
struct MeasuredProducts {
  std::string table;
  std::string dtype;  ///< "bf16"
  FlopsPerSecond peak{};
  std::vector<std::int64_t> m, n, k;  ///< The axes, rising.
  std::vector<double> share;          ///< [m, n, k]
  double large = 1;                   ///< Median share of products with m >= 2048 and n, k >= 1024.
  HeldBack held_back;

  bool operator==(const MeasuredProducts&) const = default;
};

/// Forward passes of fused attention with one head size and mask: the share of the peak rate, on a grid.
struct MeasuredAttention {
  std::string table;
  std::vector<std::string> kernels;
  bool causal = true;
  int head_size = 0;
  FlopsPerSecond peak{};
  std::vector<std::int64_t> heads;     ///< Axis: heads times batch, rising.
  std::vector<std::int64_t> sequence;  ///< Axis: queries, as many as keys, rising.
  std::vector<double> share;           ///< [heads, sequence] Under a causal mask half of the operations are counted.
  HeldBack held_back;

  bool operator==(const MeasuredAttention&) const = default;
};

/// One file.
struct Measurements {
  std::vector<std::string> gpus;  ///< Names of the cards that the tables speak for.
  std::string package;            ///< "aiconfigurator-core 0.12.0"
  std::string license;
  std::string copyright;
  std::optional<MeasuredCollectives> collectives;
  std::optional<MeasuredProducts> products;
  std::vector<MeasuredAttention> attention;

  bool operator==(const Measurements&) const = default;
};

/// The measurements of a card, shared by its copies; equal where the tables are.
class MeasuredCard {
 public:
  MeasuredCard() = default;
  explicit MeasuredCard(std::shared_ptr<const Measurements> tables) : tables_(std::move(tables)) {}

  /// Null: nobody measured the card.
  const Measurements* get() const { return tables_.get(); }
  bool operator==(const MeasuredCard& other) const {
    if (tables_ == other.tables_) return true;
    return tables_ != nullptr && other.tables_ != nullptr && *tables_ == *other.tables_;
  }

 private:
  std::shared_ptr<const Measurements> tables_;
};

/// Reads a file. Error: all that is wrong with it, tables whose sizes do not go together among it.
Result<Measurements> read_measurements(const JsonDocument& document);

/// The JSON Schema: what `fsdp-plan schema measurements` prints.
std::string measurements_schema();

/// The share of the peak rate of a product, linear in the logarithms between the shapes of the grid, and that of its
/// edge beyond. REQUIRES: positive sizes.
double measured_share(const MeasuredProducts& products, double m, double n, double k);

/// The same of attention over heads x batch and queries.
double measured_share(const MeasuredAttention& attention, double heads, double sequence);

/// The time of a collective of `bytes` in all: log-log between the measured sizes. Nothing outside of them, and where
/// no such group was measured.
std::optional<Seconds> measured_time(const MeasuredCollectives& tables, MeasuredCollective collective, int gpus,
                                     std::int64_t bytes);

}  // namespace fsdp

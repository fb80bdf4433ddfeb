#pragma once

// Settings of a run beside its plan, which must not change when it resumes: the learning rate and its schedule,
// the optimizer's constants, how gradients of micro-batches become one, and the order of the data. Nothing of it moves
// a byte of memory.

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/json_writer.h"
#include "core/base/object_reader.h"

namespace fsdp {

/// How the gradients of a step's micro-batches become one.
enum class Accumulation : std::uint8_t {
  Mean,  ///< Result of (loss / N).backward(): the gradient of the mean loss.
  Sum,   ///< Result of loss.backward(): N times that.
};

/// How the learning rate goes on after the warm-up: transformers' get_scheduler under these names.
enum class RateSchedule : std::uint8_t {
  Constant,
  Linear,  ///< To 0 at the last step of the schedule.
  Cosine,  ///< Half a wave down to `min_rate_ratio` of the rate.
};

struct Hyperparameters {
  double learning_rate = 1e-4;
  RateSchedule schedule = RateSchedule::Constant;
  std::int64_t warmup_steps = 0;    ///< In which the rate rises from 0.
  std::int64_t schedule_steps = 0;  ///< With the warm-up; 0: no schedule needs it.
  double min_rate_ratio = 0;        ///< For Cosine.
  double beta1 = 0.9;               ///< For Adam and AdamW, as
  double beta2 = 0.999;
  double eps = 1e-8;
  std::optional<double> weight_decay;  ///< In the place of the plan's.
  bool decays_norms = true;            ///< Weight decay shrinks weights and biases of norms, too, and
  bool decays_biases = true;           ///< biases of other modules.
  Accumulation accumulation = Accumulation::Mean;
  std::optional<std::int64_t> shuffle_seed;  ///< Samples of token files come in an order of their own in each epoch.
  std::optional<std::int64_t> document_end;  ///< The token after which nothing is to be predicted.

  bool operator==(const Hyperparameters&) const = default;
};

inline constexpr EnumName<Accumulation> kAccumulations[] = {{Accumulation::Mean, "mean"}, {Accumulation::Sum, "sum"}};
inline constexpr EnumTable<Accumulation> kAccumulationTable{"accumulation", kAccumulations};

inline constexpr EnumName<RateSchedule> kRateSchedules[] = {
    {RateSchedule::Constant, "constant"}, {RateSchedule::Linear, "linear"}, {RateSchedule::Cosine, "cosine"}};
inline constexpr EnumTable<RateSchedule> kRateScheduleTable{"schedule", kRateSchedules};

/// The learning rate of the step after `done` steps of the optimizer.
double rate_after(const Hyperparameters& settings, std::int64_t done);

/// All members but the learning rate, as an object of one line.
void write_json(JsonWriter& writer, const Hyperparameters& settings);
bool read_json(const JsonValue& value, Hyperparameters& settings, JsonErrors& errors);

}  // namespace fsdp

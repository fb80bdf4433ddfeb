#pragma once

// Settings of a run beside its plan, which must not change when it resumes: the learning rate and its schedule, the
// optimizer's constants, the reduction of micro-batches' gradients, and the order of the data. They do not affect
// memory.

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/json_writer.h"
#include "core/base/object_reader.h"

namespace fsdp {

/// The reduction of the gradients of a step's micro-batches.
enum class Accumulation : std::uint8_t {
  Mean,  ///< (loss / N).backward(): the gradient of the mean loss.
  Sum,   ///< loss.backward(): N times that.
};

/// The learning rate after the warm-up: transformers' get_scheduler under these names.
enum class RateSchedule : std::uint8_t {
  Constant,
  Linear,  ///< To 0 at the last step of the schedule.
  Cosine,  ///< Half a wave down to `min_rate_ratio` of the rate.
};

struct Hyperparameters {
  double learning_rate = 1e-4;
  RateSchedule schedule = RateSchedule::Constant;
  std::int64_t warmup_steps = 0;    ///< The rate rises from 0 in these steps.
  std::int64_t schedule_steps = 0;  ///< Including the warm-up. 0 if no schedule needs it.
  double min_rate_ratio = 0;        ///< For Cosine.
  double beta1 = 0.9;               ///< For Adam and AdamW, as
  double beta2 = 0.999;
  double eps = 1e-8;
  std::optional<double> weight_decay;  ///< Overrides the plan's.
  bool decays_norms = true;            ///< Weight decay includes weights and biases of norms,
  bool decays_biases = true;           ///< and biases of other modules.
  Accumulation accumulation = Accumulation::Mean;
  std::optional<std::int64_t> shuffle_seed;  ///< Shuffles the samples of token files differently in each epoch.
  std::optional<std::int64_t> document_end;  ///< The token after which nothing is predicted.

  bool operator==(const Hyperparameters&) const = default;
};

inline constexpr EnumName<Accumulation> kAccumulations[] = {{Accumulation::Mean, "mean"}, {Accumulation::Sum, "sum"}};
inline constexpr EnumTable<Accumulation> kAccumulationTable{"accumulation", kAccumulations};

inline constexpr EnumName<RateSchedule> kRateSchedules[] = {
    {RateSchedule::Constant, "constant"}, {RateSchedule::Linear, "linear"}, {RateSchedule::Cosine, "cosine"}};
inline constexpr EnumTable<RateSchedule> kRateScheduleTable{"schedule", kRateSchedules};

/// The learning rate of the step after `done` optimizer steps.
double rate_after(const Hyperparameters& settings, std::int64_t done);

/// All members but the learning rate, as an object on one line.
void write_json(JsonWriter& writer, const Hyperparameters& settings);
bool read_json(const JsonValue& value, Hyperparameters& settings, JsonErrors& errors);

}  // namespace fsdp

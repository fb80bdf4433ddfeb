// The rate of a step is the given rate times a factor of the number n of finished steps, computed in transformers'
// order of operations, so that it has the same bits. With w steps of warm-up and s of the schedule:
//
//   n < w      n / max(1, w)
//   constant   1
//   linear     max(0, (s - n) / max(1, s - w))
//   cosine     max(0, 0.5 (1 + cos(pi p)) (1 - r) + r),  p = (n - w) / max(1, s - w), r the least share of the rate
//
// Sources: transformers/optimization.py (get_constant_schedule_with_warmup, get_linear_schedule_with_warmup,
// get_cosine_with_min_lr_schedule_with_warmup), transformers 4.57; torch/optim/lr_scheduler.py (LambdaLR), torch 2.11.

#include "core/spec/hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fsdp {

namespace {

constexpr IntegerRange kSteps{0, std::int64_t{1} << 60};
constexpr RealRange kFinite{0, 1e300};
constexpr RealRange kZeroToOne{0, 1};

double factor_after(const Hyperparameters& settings, std::int64_t done) {
  const auto n = static_cast<double>(done);
  const auto warmup = static_cast<double>(settings.warmup_steps);
  if (done < settings.warmup_steps) return n / std::max(1.0, warmup);
  const auto steps = static_cast<double>(settings.schedule_steps);
  const double after_warmup = std::max(1.0, steps - warmup);
  switch (settings.schedule) {
    case RateSchedule::Constant:
      return 1;
    case RateSchedule::Linear:
      return std::max(0.0, (steps - n) / after_warmup);
    case RateSchedule::Cosine:
      break;
  }
  const double progress = std::min(1.0, (n - warmup) / after_warmup);
  const double wave = 0.5 * (1.0 + std::cos(std::numbers::pi * 0.5 * 2.0 * progress));
  return std::max(0.0, wave * (1 - settings.min_rate_ratio) + settings.min_rate_ratio);
}

}  // namespace

double rate_after(const Hyperparameters& settings, std::int64_t done) {
  return settings.learning_rate * factor_after(settings, done);
}

void write_json(JsonWriter& writer, const Hyperparameters& settings) {
  writer.begin_object(JsonLayout::OneLine);
  writer.member("schedule", name_of(kRateScheduleTable, settings.schedule));
  writer.member("warmup_steps", settings.warmup_steps);
  writer.member("schedule_steps", settings.schedule_steps);
  writer.member("min_rate_ratio", settings.min_rate_ratio);
  writer.member("beta1", settings.beta1);
  writer.member("beta2", settings.beta2);
  writer.member("eps", settings.eps);
  if (settings.weight_decay) writer.member("weight_decay", *settings.weight_decay);
  writer.member("decays_norms", settings.decays_norms);
  writer.member("decays_biases", settings.decays_biases);
  writer.member("accumulation", name_of(kAccumulationTable, settings.accumulation));
  if (settings.shuffle_seed) writer.member("shuffle_seed", *settings.shuffle_seed);
  if (settings.document_end) writer.member("document_end", *settings.document_end);
  writer.end_object();
}

bool read_json(const JsonValue& value, Hyperparameters& settings, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("schedule", settings.schedule, kRateScheduleTable);
  object.required("warmup_steps", settings.warmup_steps, kSteps);
  object.required("schedule_steps", settings.schedule_steps, kSteps);
  object.required("min_rate_ratio", settings.min_rate_ratio, kZeroToOne);
  object.required("beta1", settings.beta1, kZeroToOne);
  object.required("beta2", settings.beta2, kZeroToOne);
  object.required("eps", settings.eps, kFinite);
  object.optional("weight_decay", settings.weight_decay, kFinite);
  object.required("decays_norms", settings.decays_norms);
  object.required("decays_biases", settings.decays_biases);
  object.required("accumulation", settings.accumulation, kAccumulationTable);
  object.optional("shuffle_seed", settings.shuffle_seed);
  object.optional("document_end", settings.document_end, kSteps);
  return object.finish(UnknownKeys::Ignore);
}

}  // namespace fsdp

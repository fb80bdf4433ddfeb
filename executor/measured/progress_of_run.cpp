#include "executor/measured/progress_of_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "core/base/json_writer.h"
#include "core/base/printable.h"

namespace fsdp::executor {

namespace {

/// JSON has no infinity.
void number_or_null(JsonWriter& writer, const char* name, double value) {
  if (std::isfinite(value)) {
    writer.member(name, value);
  } else {
    writer.member(name, nullptr);
  }
}

double mean_of(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number;
  return sum / static_cast<double>(numbers.size());
}

/// All ranks stop together, so that none waits for another, and nothing of such a model is written.
Result<void> check_losses(const std::vector<double>& losses, double own, std::int64_t rank, std::int64_t number) {
  std::vector<std::size_t> ranks;
  for (std::size_t r = 0; r < losses.size(); ++r) {
    if (!std::isfinite(losses[r])) ranks.push_back(r);
  }
  if (ranks.empty()) return {};
  return failure(fmt::format("rank {}: step {}", rank, number),
                 std::isfinite(own) ? fmt::format("The loss of rank {} is NaN or infinite.", fmt::join(ranks, ", "))
                                    : fmt::format("The loss is {}.", own),
                 "This step is discarded. --nonfinite-loss continue ignores it.");
}

}  // namespace

void say(const std::string& line) {
  std::fputs((printable(line) + "\n").c_str(), stderr);
}

Result<void> agree(const Result<void>& own, std::int64_t rank, Agreement* others) {
  if (others == nullptr) return own;
  const std::string words = own ? "" : fmt::format("rank {}: {}", rank, to_string(own.error().front()));
  for (const std::string& text : others->gather(words)) {
    if (!text.empty()) return failure("", text);
  }
  return {};
}

ProgressOfRun::ProgressOfRun(const RunOptions& options, Trainer& trainer, Agreement* others, bool speaks,
                             std::shared_ptr<const SampleSource> evaluated)
    : options_(options), trainer_(trainer), others_(others), speaks_(speaks), evaluated_(std::move(evaluated)) {}

Result<void> ProgressOfRun::begin() {
  if (options_.metrics.empty()) return {};
  Result<void> own;
  if (speaks_) {
    Result<MetricsFile> opened = MetricsFile::open(options_.metrics, trainer_.progress().steps);
    if (opened) {
      metrics_ = *std::move(opened);
    } else {
      own = tl::unexpected(opened.error());
    }
  }
  return agree(own, trainer_.rank(), others_);
}

double ProgressOfRun::tokens_per_second(const StepMeasurement& step) const {
  const Plan& plan = trainer_.plan();
  const double tokens = static_cast<double>(trainer_.model().tokens_per_step * micro_batches_of_step(plan));
  return tokens / step.wall.count();
}

void ProgressOfRun::print_step(const StepMeasurement& step, std::int64_t number) const {
  say(fmt::format("step {}: loss {:.6f}, {:.3f} s, {:.0f} tokens/s, peak {:.1f} MiB per rank", number, step.loss,
                  step.wall.count(), tokens_per_second(step),
                  static_cast<double>(step.peak.bytes.count()) / (1 << 20)));
}

Result<void> ProgressOfRun::write_metrics(const StepMeasurement& step, std::int64_t number, double loss) {
  JsonWriter line;
  line.begin_object(JsonLayout::OneLine);
  line.member("step", number);
  number_or_null(line, "loss", loss);
  if (trainer_.plan().optimizer.clip_grad_norm) number_or_null(line, "gradient_norm", step.gradient_norm);
  line.member("learning_rate", step.learning_rate);
  line.member("seconds", step.wall.count());
  line.member("tokens_per_second", tokens_per_second(step));
  if (trainer_.progress().samples > 0) line.member("samples", trainer_.progress().samples);
  line.member("live_peak_bytes", step.peak.bytes.count());
  line.end_object();
  return metrics_->add(std::move(line));
}

Result<void> ProgressOfRun::after_step(const StepMeasurement& step, std::int64_t number) {
  if (speaks_) print_step(step, number);
  if (!options_.stops_at_nonfinite_loss && options_.metrics.empty()) return {};
  const std::vector<double> losses = others_ != nullptr ? others_->numbers(step.loss) : std::vector<double>{step.loss};
  if (metrics_) {
    if (Result<void> written = write_metrics(step, number, mean_of(losses)); !written) return written;
  }
  if (!options_.stops_at_nonfinite_loss) return {};
  return check_losses(losses, step.loss, trainer_.rank(), number);
}

bool ProgressOfRun::evaluates_after(std::int64_t number) const {
  const bool is_due = options_.evaluate_every > 0 && number % options_.evaluate_every == 0;
  return evaluated_ && (is_due || number == options_.steps);
}

Result<void> ProgressOfRun::evaluate(std::int64_t number) {
  const std::int64_t round = trainer_.plan().mesh.world_size() * evaluated_->batch();
  std::int64_t samples = evaluated_->samples();
  if (options_.evaluate_samples > 0) samples = std::min(samples, options_.evaluate_samples);
  const std::int64_t rounds = samples / round;
  evaluation_ = trainer_.evaluate(*evaluated_, rounds);
  if (others_ != nullptr) evaluation_->loss = mean_of(others_->numbers(evaluation_->loss));
  if (!speaks_) return {};
  say(fmt::format("evaluation after step {}: loss {:.6f} over {} samples", number, evaluation_->loss, rounds * round));
  if (!metrics_) return {};
  JsonWriter line;
  line.begin_object(JsonLayout::OneLine);
  line.member("step", number);
  number_or_null(line, "evaluation_loss", evaluation_->loss);
  line.member("evaluation_samples", rounds * round);
  line.member("evaluation_live_peak_bytes", evaluation_->peak.bytes.count());
  line.end_object();
  return metrics_->add(std::move(line));
}

}  // namespace fsdp::executor

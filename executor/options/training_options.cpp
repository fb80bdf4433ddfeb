#include "executor/options/training_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <limits>
#include <utility>
#include <vector>

#include "core/base/json_writer.h"
#include "core/plan/optimizer_table.h"
#include "executor/options/choice_option.h"
#include "executor/options/number_option.h"

namespace fsdp::executor {

namespace {

constexpr std::int64_t kMostSteps = 1'000'000'000;

/// An option and its member of the settings.
struct Member {
  const char* flag;
  void (*copy)(const Hyperparameters& from, Hyperparameters& to);
};
constexpr Member kMembers[] = {
    {"--lr", [](const Hyperparameters& from, Hyperparameters& to) { to.learning_rate = from.learning_rate; }},
    {"--schedule", [](const Hyperparameters& from, Hyperparameters& to) { to.schedule = from.schedule; }},
    {"--warmup", [](const Hyperparameters& from, Hyperparameters& to) { to.warmup_steps = from.warmup_steps; }},
    {"--schedule-steps",
     [](const Hyperparameters& from, Hyperparameters& to) { to.schedule_steps = from.schedule_steps; }},
    {"--min-lr-ratio",
     [](const Hyperparameters& from, Hyperparameters& to) { to.min_rate_ratio = from.min_rate_ratio; }},
    {"--betas",
     [](const Hyperparameters& from, Hyperparameters& to) {
       to.beta1 = from.beta1;
       to.beta2 = from.beta2;
     }},
    {"--eps", [](const Hyperparameters& from, Hyperparameters& to) { to.eps = from.eps; }},
    {"--weight-decay", [](const Hyperparameters& from, Hyperparameters& to) { to.weight_decay = from.weight_decay; }},
    {"--no-decay",
     [](const Hyperparameters& from, Hyperparameters& to) {
       to.decays_norms = from.decays_norms;
       to.decays_biases = from.decays_biases;
     }},
    {"--shuffle", [](const Hyperparameters& from, Hyperparameters& to) { to.shuffle_seed = from.shuffle_seed; }},
    {"--document-end", [](const Hyperparameters& from, Hyperparameters& to) { to.document_end = from.document_end; }},
    {"--accumulation", [](const Hyperparameters& from, Hyperparameters& to) { to.accumulation = from.accumulation; }},
};

}  // namespace

void describe_training_options(CLI::App& app, TrainingOptions& options) {
  Hyperparameters& values = options.values;
  app.add_option("--lr", values.learning_rate, "Learning rate (1e-4)")->check(number_between(0, kAnything, true));
  add_choice(app, "--schedule", values.schedule, kRateScheduleTable,
             "Learning rate after the warm-up: constant, linear or cosine (constant)");
  app.add_option("--warmup", values.warmup_steps, "Warm-up steps, in which the learning rate rises from 0 (0)")
      ->check(CLI::Range(std::int64_t{0}, kMostSteps));
  app.add_option("--schedule-steps", values.schedule_steps, "Length of the schedule, warm-up included (--steps)")
      ->check(CLI::Range(std::int64_t{1}, kMostSteps));
  app.add_option("--min-lr-ratio", values.min_rate_ratio, "Final share of the learning rate, for cosine (0)")
      ->check(number_between(0, 1, true));
  const auto betas = [&values](const std::vector<double>& both) {
    values.beta1 = both[0];
    values.beta2 = both[1];
  };
  app.add_option_function<std::vector<double>>("--betas", betas, "Betas of Adam and AdamW: two numbers (0.9 0.999)")
      ->expected(2)
      ->check(number_between(0, 1, false));
  app.add_option("--eps", values.eps, "Epsilon of Adam and AdamW (1e-8)")->check(number_between(0, kAnything, true));
  app.add_option("--weight-decay", values.weight_decay, "Weight decay, instead of the plan's")
      ->check(number_between(0, kAnything, true));
  const auto no_decay = [&values](const std::vector<std::string>& kinds) {
    for (const std::string& kind : kinds) (kind == "norms" ? values.decays_norms : values.decays_biases) = false;
  };
  app.add_option_function<std::vector<std::string>>("--no-decay", no_decay,
                                                    "Parameters without weight decay: norms, biases or norms,biases")
      ->delimiter(',')
      ->check(CLI::IsMember({"norms", "biases"}));
  app.add_option("--shuffle", values.shuffle_seed, "Shuffle the samples of --tokens in each epoch, from this seed")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  app.add_option("--document-end", values.document_end,
                 "Id of the end-of-document token: the next one is not predicted")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  add_choice(app, "--accumulation", values.accumulation, kAccumulationTable,
             "How gradients of micro-batches are combined: mean, as with (loss / N).backward(), or sum (mean)");
}

void note_given(const CLI::App& app, TrainingOptions& options) {
  for (const Member& member : kMembers) {
    if (app.count(member.flag) > 0) options.given.insert(member.flag);
  }
}

void go_on_with(const Hyperparameters& before, TrainingOptions& options) {
  Hyperparameters merged = before;
  for (const Member& member : kMembers) {
    if (options.given.contains(member.flag)) member.copy(options.values, merged);
  }
  options.values = merged;
}

Errors settle_training_options(const Plan& plan, std::int64_t steps, TrainingOptions& options) {
  Errors errors;
  Hyperparameters& values = options.values;
  const bool is_constant = values.schedule == RateSchedule::Constant;
  if (!is_constant && values.schedule_steps == 0) values.schedule_steps = steps;
  if (is_constant && options.given.contains("--schedule-steps")) {
    errors.push_back(
        {"--schedule-steps", "A constant learning rate has no schedule length.", "Add --schedule linear or cosine."});
  }
  if (is_constant) values.schedule_steps = 0;
  if (!is_constant && values.warmup_steps > values.schedule_steps) {
    errors.push_back({"--warmup",
                      fmt::format("The warm-up has {} steps, and the whole schedule {}.", values.warmup_steps,
                                  values.schedule_steps),
                      ""});
  }
  if (values.schedule != RateSchedule::Cosine && options.given.contains("--min-lr-ratio")) {
    errors.push_back({"--min-lr-ratio", "Only cosine ends at a share of the learning rate.", "Add --schedule cosine."});
  }
  if (const OptimizerRow& row = optimizer_row(plan.optimizer); !row.has_betas) {
    for (const char* flag : {"--betas", "--eps"}) {
      if (!options.given.contains(flag)) continue;
      errors.push_back(
          {flag, fmt::format("It applies to Adam and AdamW, and the plan uses {}.", row.class_name), "Leave it out."});
    }
  }
  return errors;
}

std::string text_of(const Hyperparameters& settings) {
  JsonWriter writer;
  write_json(writer, settings);
  return fmt::format("learning rate {}, {}", settings.learning_rate, std::move(writer).take());
}

}  // namespace fsdp::executor

#pragma once

// The options of fsdp-plan: one table, from which the parser, the help and the completions of the shells are made.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "planner/space/plan_choices.h"

namespace fsdp::command {

enum class Command {
  Plan,
  Simulate,
  Explain,
  Fit,
  Check,
  Clock,
  Capture,
  Rehearse,
  Run,
  Measure,
  Execute,
  Calibrate,
  Replay,
  Compare,
  Export,
  Schema,
  Models,
  Gpus,
  Doctor,
  Completions
};

/// A set of commands: `Command::Plan | Command::Models`.
class CommandSet {
 public:
  constexpr CommandSet() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a set of one.
  constexpr CommandSet(Command command) : bits_(1U << static_cast<unsigned>(command)) {}

  static constexpr CommandSet all() {
    CommandSet set;
    set.bits_ = (2U << static_cast<unsigned>(Command::Completions)) - 1;
    return set;
  }
  constexpr bool has(Command command) const { return (bits_ >> static_cast<unsigned>(command) & 1U) != 0; }
  friend constexpr CommandSet operator|(CommandSet a, CommandSet b) {
    a.bits_ |= b.bits_;
    return a;
  }
  constexpr bool operator==(const CommandSet&) const = default;

 private:
  std::uint32_t bits_ = 0;
};
constexpr CommandSet operator|(Command a, Command b) {
  return CommandSet(a) | CommandSet(b);
}

struct CommandInfo {
  Command command = Command::Plan;
  std::string_view name;
  std::string_view argument;  ///< "MODEL"; "[NAME]" is optional; "A B" needs both. Empty if there is none.
  std::string_view summary;   ///< One sentence.
};
std::span<const CommandInfo> commands();
const CommandInfo& info_of(Command command);

/// The options that make no choice of a plan. They follow the choices: `Option` is an index into both.
enum class CommandOption : std::uint8_t {
  // The machine.
  WorldSize = planner::kNumPlanChoices,
  AtMost,
  Objective,
  Price,
  // The search.
  Effort,
  Lengths,
  // A rehearsal.
  Steps,
  Timeout,
  RecordStream,
  Routing,
  AllowWrites,
  NcclBytes,
  ContextBytes,
  CudnnWorkspace,
  Apply,
  FindBatch,
  Python,
  Snapshot,
  AllocatorTrace,
  Html,
  Progress,
  CompareWith,
  Tolerance,
  // A capture.
  BatchOption,
  Batches,
  NoCheck,
  // A run.
  Proof,
  Ranks,
  Device,
  RunFolder,
  ChromeTrace,
  Calibration,
  Budget,
  Rounds,
  // The training, for fsdp-exec (`handed_on`).
  Seed,
  Reduction,
  Weights,
  Tokens,
  TokenDtype,
  Labels,
  Shuffle,
  DocumentEnd,
  EvaluateFiles,
  EvaluateEvery,
  EvaluateSamples,
  CheckpointFolder,
  CheckpointEvery,
  CheckpointKeep,
  Resume,
  SaveParameters,
  Metrics,
  MeasureEvery,
  // How a run trains, for fsdp-exec.
  LearningRate,
  Schedule,
  Warmup,
  ScheduleSteps,
  MinRateRatio,
  Betas,
  Epsilon,
  WeightDecay,
  NoDecay,
  Accumulation,
  NonfiniteLoss,
  // A replay.
  DeviceMemory,
  // A clock.
  ClockDtype,
  Causal,
  // The output.
  Output,
  Force,
  Json,
  Expanded,
  OutputFormat,
  Rank,
  ExportTo,
  Nearest,
  TrainerVersion,
  For,
  Color,
  Explain,
  Phases,
  Fix,
  Diff,
  Write,
  EvaluationBatch,
  Time,
  Verbose,
  Quiet,
  Strict,
  Help,
  HelpAll,
  Version,
};

/// An option of fsdp-plan: a choice of a plan or an option of the command alone. `Option::Gpus` and `Option::Json`
/// name one of each.
class Option {
 public:
  using enum planner::PlanChoice;
  using enum CommandOption;

  // NOLINTBEGIN(google-explicit-constructor): each is an option.
  constexpr Option(planner::PlanChoice choice) : index_(static_cast<std::size_t>(choice)) {}
  constexpr Option(CommandOption option) : index_(static_cast<std::size_t>(option)) {}
  // NOLINTEND(google-explicit-constructor)
  /// The index in `options()`.
  constexpr explicit operator std::size_t() const { return index_; }
  constexpr bool operator==(const Option&) const = default;

 private:
  std::size_t index_;
};

struct OptionInfo {
  Option option = Option::Help;
  std::string_view names;    ///< "--gpus,--nproc-per-node": messages use the first.
  std::string_view value;    ///< "N". Empty for a flag.
  std::string_view choices;  ///< "bf16|mixed": the values, for completions. Empty if any is allowed.
  std::string_view group;    ///< Heading in the help.
  std::string_view help;     ///< A sentence without its full stop.
  CommandSet commands;       ///< The commands that take it.
  bool repeatable = false;   ///< May be given several times; otherwise the last one counts.
  bool many = false;         ///< Takes all words up to the next option.
};
std::span<const OptionInfo> options();
const OptionInfo& info_of(Option option);
/// The headings of the help in the order of a user's decisions: the model, the GPUs, the trainer, the rest, the
/// output.
std::span<const std::string_view> option_groups();
/// The options that `execute` passes to fsdp-exec, which has them under the same names and checks them.
std::span<const OptionInfo> handed_on();

/// The help text of an option in one command.
struct OptionWords {
  std::string_view group;
  std::string_view help;
};
OptionWords option_words(const OptionInfo& info, Command command);

/// "--gpus": its name in messages.
std::string_view flag_of(Option option);

struct JobOfLine;

/// A command line as written, before it is interpreted.
struct CommandLine {
  Command command = Command::Plan;
  std::vector<std::string> arguments;            ///< Without the command's name.
  std::vector<std::string> script;               ///< For rehearse: the words after "--".
  std::vector<std::vector<std::string>> values;  ///< [options] A flag that was given has one empty value.
  std::vector<std::string> notes;                ///< Sentences, for example about options with an old name.
  /// The configuration whose choices it has (command/cli_job.h). May be null.
  std::shared_ptr<const JobOfLine> job = {};

  bool has(Option option) const { return !values[static_cast<std::size_t>(option)].empty(); }
  /// The last value; `nullopt` if it was not given.
  std::optional<std::string> value(Option option) const;
  const std::vector<std::string>& all(Option option) const { return values[static_cast<std::size_t>(option)]; }
};

/// The current name of an option whose old name `command` still takes until the next version; otherwise `name`.
std::string_view current_name(std::string_view name, Command command);

/// Errors: every unknown option, with the nearest name; options that the command does not take; missing values; too
/// many or too few arguments.
Result<CommandLine> parse_command_line(std::span<const std::string> arguments);

}  // namespace fsdp::command

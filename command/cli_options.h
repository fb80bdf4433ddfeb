#pragma once

// The options of fsdp-plan: one table, from which the parser, the help and the completions of the shells are made.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

enum class Command {
  Plan,
  Simulate,
  Explain,
  Fit,
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

/// Some of the commands: `Command::Plan | Command::Models`.
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
  std::string_view argument;  ///< "MODEL"; empty: none; "[NAME]": may be left out; "A B": both are needed.
  std::string_view summary;   ///< One sentence.
};
std::span<const CommandInfo> commands();
const CommandInfo& info_of(Command command);

/// The options that make no choice of a plan. They follow those that do: `Option` is the index of either.
enum class CommandOption : std::uint8_t {
  // Which machine.
  WorldSize = kNumPlanChoices,
  AtMost,
  Objective,
  Price,
  // How far it is searched.
  Effort,
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
  Time,
  Verbose,
  Quiet,
  Strict,
  Help,
  HelpAll,
  Version,
};

/// An option of fsdp-plan: one that makes a choice of a plan, or one of the command alone. `Option::Gpus` and
/// `Option::Json` name both.
class Option {
 public:
  using enum PlanChoice;
  using enum CommandOption;

  // NOLINTBEGIN(google-explicit-constructor): each is an option.
  constexpr Option(PlanChoice choice) : index_(static_cast<std::size_t>(choice)) {}
  constexpr Option(CommandOption option) : index_(static_cast<std::size_t>(option)) {}
  // NOLINTEND(google-explicit-constructor)
  /// Its place in `options()`.
  constexpr explicit operator std::size_t() const { return index_; }
  constexpr bool operator==(const Option&) const = default;

 private:
  std::size_t index_;
};

struct OptionInfo {
  Option option = Option::Help;
  std::string_view names;    ///< "--gpus,--nproc-per-node": the first is what messages say.
  std::string_view value;    ///< "N"; empty: a flag.
  std::string_view choices;  ///< "bf16|mixed": what it may be, for completions; empty: anything.
  std::string_view group;    ///< Heading in the help.
  std::string_view help;     ///< A sentence without its full stop.
  CommandSet commands;       ///< Those that take it.
  bool repeatable = false;   ///< May be given several times; else the last one counts.
  bool many = false;         ///< Takes all words up to the next option.
};
std::span<const OptionInfo> options();
const OptionInfo& info_of(Option option);
/// The headings of the help in the order in which somebody decides: the model, the GPUs, the trainer, then the rest,
/// and last the output.
std::span<const std::string_view> option_groups();
/// Those that `execute` hands on to fsdp-exec, which has them under the same name and checks them.
std::span<const OptionInfo> handed_on();

/// The help of one command for an option.
struct OptionWords {
  std::string_view group;
  std::string_view help;
};
OptionWords words_of(const OptionInfo& info, Command command);

/// "--gpus": what messages call it.
std::string_view flag_of(Option option);

/// A command line as written, before it is interpreted.
struct CommandLine {
  Command command = Command::Plan;
  std::vector<std::string> arguments;            ///< Without the command's name.
  std::vector<std::string> script;               ///< For rehearse: the words after "--".
  std::vector<std::vector<std::string>> values;  ///< [options] A flag that is given has one empty value.
  std::vector<std::string> notes;                ///< Sentences, such as about options with an old name.

  bool has(Option option) const { return !values[static_cast<std::size_t>(option)].empty(); }
  /// The last value; nothing when it was not given.
  std::optional<std::string> value(Option option) const;
  const std::vector<std::string>& all(Option option) const { return values[static_cast<std::size_t>(option)]; }
};

/// Today's name of an option that `command` knew by another one, which is taken until the next version; else the same
/// name.
std::string_view current_name(std::string_view name, Command command);

/// Errors: every unknown option, with the nearest one; options that the command does not take; missing values; too
/// many or too few arguments.
Result<CommandLine> parse_command_line(std::span<const std::string> arguments);

}  // namespace fsdp::planner

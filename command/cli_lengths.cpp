#include "command/cli_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "command/cli_request.h"
#include "command/cli_values.h"
#include "core/base/parse_units.h"
#include "core/formats/lengths_file.h"
#include "core/report/device_verdict.h"
#include "planner/space/batches.h"
#include "text/progress_line.h"

namespace fsdp::command {

namespace {

constexpr std::int64_t kMostSteps = 100000;

/// Errors: options that only --lengths has, without it; options that set the length otherwise.
Errors check_lengths(const CommandLine& line) {
  Errors errors;
  if (!line.has(Option::Lengths)) {
    for (const Option option : {Option::Steps, Option::Seed}) {
      if (!line.has(option)) continue;
      errors.push_back({std::string(flag_of(option)), "It is about the batches of --lengths, which is not given.",
                        "Add --lengths FILE."});
    }
    return errors;
  }
  const std::string place(flag_of(Option::Lengths));
  if (!line.script.empty()) {
    errors.push_back({place, "A captured script has the lengths that it ran with.",
                      "Plan a shipped model or a Hugging Face folder."});
  }
  if (line.has(Option::Packing)) {
    errors.push_back({place, "--packing fills rows of one length, without padding.", "Give one of the two."});
  }
  if (line.has(Option::Also)) {
    errors.push_back({place, "Lengths are not predicted with models beside the trained one.", "Give one of the two."});
  }
  for (const std::string& size : line.all(Option::SetDimension)) {
    if (!size.starts_with("seq=")) continue;
    errors.push_back({place, fmt::format("It gives the length of each batch, and --set {} gives one, too.", size),
                      fmt::format("Write --seq {} to cut longer samples.", size.substr(4))});
  }
  if (line.value(Option::Lengths) == "-") {
    errors.push_back({place, "The lengths are read more than once, so the standard input is none.", "Name a file."});
  }
  if (!line.arguments.empty() && line.arguments.front() == "-") {
    errors.push_back({place, "The model is read more than once, so the standard input is none.", "Name its file."});
  }
  OptionReader reader(line, errors);
  const auto steps = reader.count(Option::Steps);
  if (steps && *steps > kMostSteps) {
    reader.fail(Option::Steps, fmt::format("At most {} steps are run.", kMostSteps),
                "A late step is like earlier ones.");
  }
  reader.count(Option::Seed, 0);
  return errors;
}

}  // namespace

bool pads_by_default(const ModelSpec& spec, std::string_view flavor, std::optional<std::int64_t> batch) {
  return makes_padding_mask(spec) && flavor.starts_with("transformers") && batch != 1;
}

Result<CommandLine> planned_at_longest(const CommandLine& line, const std::string& library) {
  if (Errors errors = check_lengths(line); !errors.empty()) return tl::unexpected(std::move(errors));
  if (!line.has(Option::Lengths)) return line;
  const std::string path = line.value(Option::Lengths).value_or("");
  FSDP_TRY(const std::vector<std::int64_t> lengths, read_lengths(path, flag_of(Option::Lengths)));
  Errors ignored;  // The reader of the request reports them.
  planner::PlanRequest request = read_choices(line, ignored);
  request.model = line.arguments.front();
  const planner::PlanChoices& choices = request.choices;
  const planner::LengthSamples samples{.lengths = lengths, .limit = choices.sequence.value_or(0), .where = path};
  CommandLine planned = line;
  const auto set = [&](Option option, std::string value) {
    planned.values[static_cast<std::size_t>(option)] = {std::move(value)};
  };
  set(Option::Sequence, std::to_string(planner::longest_of(samples)));
  const Result<ModelSpec> spec = planner::read_spec(request, library);
  const bool pads = spec && pads_by_default(*spec, choices.flavor.value_or("transformers"), choices.batch);
  if (pads && !choices.padding_mask) set(Option::PaddingMask, "yes");
  return planned;
}

Result<std::optional<planner::LengthAnswer>> answer_lengths(const CommandLine& line, const Output& output,
                                                            const ModelSpec& spec, const Cluster& cluster,
                                                            const StepReport& report) {
  if (Errors errors = check_lengths(line); !errors.empty()) return tl::unexpected(std::move(errors));
  if (!line.has(Option::Lengths)) return std::nullopt;
  planner::LengthSamples samples{.where = line.value(Option::Lengths).value_or("")};
  FSDP_TRY(samples.lengths, read_lengths(samples.where, flag_of(Option::Lengths)));
  const Dimension* sequence = find_dimension(report.plan.dimensions, planner::kSequenceDimension);
  if (sequence != nullptr) samples.limit = static_cast<std::int64_t>(sequence->value);
  Errors none;  // check_lengths reported them.
  OptionReader reader(line, none);
  text::ProgressLine progress(output.console.err, output.err, !output.quiet, text::seconds_of_this_process,
                              text::InPipe::Lines);
  planner::LengthOptions options;
  options.steps = reader.count(Option::Steps).value_or(options.steps);
  options.seed = reader.count(Option::Seed, 0).value_or(options.seed);
  options.tries_remedies = !output.quiet;
  options.on_run = [&](const std::string& what) {
    progress.show(fmt::format("running {} steps: {}", options.steps, what));
  };
  Result<planner::LengthAnswer> answer =
      planner::answer_lengths(spec, report.plan, cluster, report.memory, samples, options);
  progress.erase();
  if (!answer) return tl::unexpected(std::move(answer).error());
  return *std::move(answer);
}

ExitCode code_of(const CommandLine& line, const StepReport& report,
                 const std::optional<planner::LengthAnswer>& lengths) {
  const DeviceVerdict run = lengths ? lengths->verdict() : DeviceVerdict{Verdict::Fits, Tightness::None};
  const bool is_out = report.verdict == Verdict::DoesNotFit || run.verdict == Verdict::DoesNotFit;
  const bool has_no_room = is_tight(report) || run.tightness != Tightness::None;
  return is_out || (has_no_room && line.has(Option::Strict)) ? kExitNo : kExitYes;
}

}  // namespace fsdp::command

#include "command/trainer_search.h"

#include <string>
#include <string_view>

#include "command/cli_values.h"
#include "core/base/object_reader.h"

namespace fsdp::command {

namespace {

constexpr EnumName<planner::Trainer> kWantedTrainers[] = {{planner::Trainer::Accelerate, "accelerate"},
                                                          {planner::Trainer::Transformers, "trainer"},
                                                          {planner::Trainer::Torchtitan, "torchtitan"},
                                                          {planner::Trainer::DeepSpeed, "deepspeed"}};
constexpr EnumTable<planner::Trainer> kWantedTable{"trainer", kWantedTrainers};
constexpr std::string_view kByHand = "fsdp2";

/// Adds options that a trainer implies, unless they are given: DeepSpeed's stages, torchtitan's model code.
CommandLine with_implied(const CommandLine& line, std::optional<planner::Trainer> trainer) {
  CommandLine implied = line;
  const auto imply = [&](Option option, std::string_view value) {
    if (!line.has(option)) implied.values[static_cast<std::size_t>(option)] = {std::string(value)};
  };
  if (trainer == planner::Trainer::DeepSpeed) imply(Option::Runtime, "zero1,zero2,zero3");
  if (trainer == planner::Trainer::Torchtitan) imply(Option::Flavor, "torchtitan");
  if (!trainer) imply(Option::Runtime, kByHand);
  return implied;
}

}  // namespace

WantedTrainer wanted_trainer(const CommandLine& line, Errors& errors) {
  WantedTrainer wanted;
  if (line.value(Option::For) != kByHand) wanted.trainer = OptionReader(line, errors).choice(Option::For, kWantedTable);
  const auto version = line.value(Option::TrainerVersion);
  if (wanted.trainer) wanted.release = *wanted.trainer;
  if (version && wanted.trainer) {
    const Result<planner::TrainerRelease> found =
        planner::find_release(*wanted.trainer, *version, flag_of(Option::TrainerVersion));
    if (!found) append(errors, found.error());
    if (found) wanted.release = *found;
  }
  wanted.line = with_implied(line, wanted.trainer);
  for (const Option option : {Option::For, Option::TrainerVersion}) {
    wanted.line.values[static_cast<std::size_t>(option)].clear();
  }
  return wanted;
}

}  // namespace fsdp::command

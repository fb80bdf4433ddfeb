// Makes the machines as for a plan (command/cli_request.h), with the numbers of the launcher's arguments unless options
// give them, and with an H100 if no GPU is named.

#include "command/cli_rehearse_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>
#include <utility>

#include "command/cli_request.h"
#include "command/cli_values.h"
#include "core/base/nearest.h"
#include "core/base/parse_units.h"
#include "core/base/split.h"
#include "runs/rehearse_plan.h"

namespace fsdp::command {

namespace {

constexpr std::string_view kDefaultGpu = "H100 SXM";

std::optional<runs::RankChoice> read_ranks(const CommandLine& line, Errors& errors) {
  const std::optional<std::string> text = line.value(Option::Rank);
  if (!text) return runs::RankChoice{};
  if (*text == "all") return runs::RankChoice{.kind = runs::RankChoice::Kind::All};
  if (*text == "worst") return runs::RankChoice{.kind = runs::RankChoice::Kind::Worst};
  std::set<std::int64_t> numbers;
  for (const std::string_view part : split(*text, ',')) {
    const std::optional<std::int64_t> number = parse_integer(part);
    if (!number || *number < 0) {
      errors.push_back(
          {"--rank", fmt::format("\"{}\" is not a rank.", part), "Write a number, numbers with commas, all or worst."});
      return std::nullopt;
    }
    numbers.insert(*number);
  }
  return runs::RankChoice{.kind = runs::RankChoice::Kind::Numbers, .numbers = {numbers.begin(), numbers.end()}};
}

template <class T>
std::optional<T> one_of(const CommandLine& line, Option option,
                        std::initializer_list<std::pair<std::string_view, T>> known, Errors& errors) {
  const std::optional<std::string> text = line.value(option);
  if (!text) return std::nullopt;
  std::vector<std::string_view> names;
  for (const auto& [name, value] : known) {
    if (*text == name) return value;
    names.push_back(name);
  }
  errors.push_back({std::string(flag_of(option)), fmt::format("\"{}\" is not a choice.", *text),
                    fmt::format("Write {}.", join_names(names, " or "))});
  return std::nullopt;
}

/// The machines, with the launcher's numbers unless options give them.
Result<Cluster> machines_of_script(CommandLine line, const std::string& library, runs::RehearsalSettings& settings) {
  const runs::Launch& launch = settings.launch;
  const auto set = [&](Option option, const std::string& text) {
    line.values[static_cast<std::size_t>(option)] = {text};
  };
  const bool has_counts = line.has(Option::Gpus) || line.has(Option::Nodes);
  const bool launch_counts = launch.gpus_per_node || launch.nodes;
  line = with_counts_of(launch, std::move(line));
  // Memory alone does not decide which kernels PyTorch runs, and PyTorch may no longer support the oldest GPU with it.
  if (!line.has(Option::GpuName) && !line.has(Option::ClusterFile)) {
    set(Option::GpuName, std::string(kDefaultGpu));
    settings.assumptions.push_back(
        line.has(Option::Memory)
            ? fmt::format("No GPU is named, so it is an {} with the memory given; --gpu names yours.", kDefaultGpu)
            : fmt::format("No GPU is named, so it is an {}; --gpu or --mem name yours.", kDefaultGpu));
  }
  // A named cluster gives the number of GPUs if the launcher does not.
  settings.counts_given = has_counts || (line.has(Option::ClusterFile) && !launch_counts);
  settings.counts_known = settings.counts_given || launch_counts || launch.is_python;
  if (!launch.counts_by.empty() && !has_counts) {
    settings.assumptions.push_back(fmt::format(
        "{} starts one process per GPU of the machine; their number was not given, so it is 1. Give it with --gpus.",
        launch.counts_by));
  }
  return read_machines(line, library);
}

void read_rehearsal_options(const CommandLine& line, runs::RehearsalSettings& settings, Errors& errors) {
  OptionReader reader(line, errors);
  settings.ranks = read_ranks(line, errors).value_or(runs::RankChoice{});
  settings.steps = reader.count(Option::Steps, 0).value_or(settings.steps);
  settings.timeout = reader.time(Option::Timeout).value_or(settings.timeout);
  using Bound = std::optional<runs::EventBound>;
  settings.bound =
      one_of<Bound>(line, Option::RecordStream,
                    {{"auto", Bound()}, {"done", runs::EventBound::Done}, {"hold", runs::EventBound::Hold}}, errors)
          .value_or(Bound());
  settings.routing = one_of<std::string>(line, Option::Routing, {{"none", "none"}, {"balanced", "balanced"}}, errors)
                         .value_or("balanced");
  settings.allow_writes = line.has(Option::AllowWrites);
  settings.cudnn_workspace = reader.size(Option::CudnnWorkspace);
  settings.progress = line.value(Option::Progress).value_or("");
  settings.snapshot = line.value(Option::Snapshot).value_or("");
  settings.trace = line.value(Option::AllocatorTrace).value_or("");
}

void read_device_terms(const CommandLine& line, runs::RehearsalSettings& settings, Errors& errors) {
  OptionReader reader(line, errors);
  settings.nccl = runs::communicators_of(settings, reader.size(Option::NcclBytes));
  const auto& context = settings.cluster.gpu.context;
  settings.context = {"CUDA context", context.value, context.provenance, context.source};
  if (const std::optional<Bytes> given = reader.size(Option::ContextBytes)) {
    settings.context = {"CUDA context", *given, Provenance::Given, "--context-bytes"};
  }
  const Bytes usable = settings.cluster.gpu.usable_memory.value;
  const Bytes reserved = reserved_by_others(settings.cluster);
  if (settings.context.bytes + reserved >= usable) {
    errors.push_back(
        {"--context-bytes",
         fmt::format("The CUDA context of {}{} leaves nothing of the GPU's {}.", format_bytes(settings.context.bytes),
                     reserved > Bytes(0) ? fmt::format(" beside {} of other programs", format_bytes(reserved)) : "",
                     format_bytes(usable)),
         ""});
  }
}

}  // namespace

CommandLine with_counts_of(const runs::Launch& launch, CommandLine line) {
  const auto set = [&](Option option, std::int64_t count) {
    line.values[static_cast<std::size_t>(option)] = {fmt::format("{}", count)};
  };
  if (!line.has(Option::Gpus) && launch.gpus_per_node) set(Option::Gpus, *launch.gpus_per_node);
  if (!line.has(Option::Nodes) && launch.nodes) set(Option::Nodes, *launch.nodes);
  return line;
}

Result<runs::RehearsalSettings> read_rehearsal(const CommandLine& line, const std::string& library,
                                               const runs::RehearsalPlaces& places, const runs::Given* applied) {
  Errors errors;
  runs::RehearsalSettings settings{.places = places, .command = line.script};
  runs::check_places(places, !line.has(Option::AllowWrites), errors);
  OptionReader reader(line, errors);
  read_rehearsal_options(line, settings, errors);
  if (!line.script.empty()) {
    settings.launch = runs::read_launch(line.script);
    settings.program = reader.keep(runs::find_program(line.script.front(), places.path)).value_or("");
  }
  std::optional<Cluster> cluster;
  if (applied != nullptr) {
    cluster = applied->cluster;
    settings.counts_known = settings.counts_given = true;
    settings.apply_name = applied->path;
    settings.leaves_out_compile = applied->spec.captured != nullptr;
  } else {
    cluster = reader.keep(machines_of_script(line, library, settings));
  }
  if (!cluster) {
    for (const Option size : {Option::NcclBytes, Option::ContextBytes}) reader.size(size);
    return tl::unexpected(std::move(errors));
  }
  settings.cluster = *std::move(cluster);
  settings.assumptions.insert(settings.assumptions.end(), settings.cluster.assumptions.begin(),
                              settings.cluster.assumptions.end());
  read_device_terms(line, settings, errors);
  if (applied != nullptr && !line.has(Option::NcclBytes)) runs::charge_groups(settings, *applied);
  if (settings.counts_known) {
    reader.keep(runs::ranks_of(settings.ranks, world_size(settings.cluster), settings.cluster.gpus_per_node));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return settings;
}

Result<runs::RehearsalSettings> read_plan_rehearsal(const CommandLine& line, const runs::Given& given,
                                                    const runs::RehearsalPlaces& places) {
  Errors errors;
  OptionReader reader(line, errors);
  runs::RehearsalSettings settings{.places = places};
  runs::check_places(places, !line.has(Option::AllowWrites), errors);
  settings.program = reader.keep(runs::find_torch_python(line.value(Option::Python).value_or(""), places)).value_or("");
  settings.command = {settings.program, "-m", "fsdp_plan_runner"};
  settings.shown_command = {"python", "-m", "fsdp_plan_runner", given.path};
  settings.cluster = given.cluster;
  settings.counts_known = settings.counts_given = true;
  settings.assumptions = given.cluster.assumptions;
  read_rehearsal_options(line, settings, errors);
  read_device_terms(line, settings, errors);
  if (!line.has(Option::NcclBytes)) runs::charge_groups(settings, given);
  reader.keep(runs::ranks_of(settings.ranks, world_size(settings.cluster), settings.cluster.gpus_per_node));
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return settings;
}

}  // namespace fsdp::command

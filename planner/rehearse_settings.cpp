// From options to settings. The machines are put together as for a plan (planner/cli_request.h), with the numbers of
// the launcher's arguments where no option says them, and with an H100 where no GPU is named.
//
// Device memory outside PyTorch's allocator is charged by stated terms: the CUDA context of the GPU's description, and
// for each communicator what simulator/nccl_memory.h says of that many neighboring ranks with all-reduces. Every
// divisor of the world is a size that a mesh may have; whatever else a script makes is charged as the whole world.

#include "planner/rehearse_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "core/environment.h"
#include "core/nearest.h"
#include "core/parse_units.h"
#include "planner/cli_request.h"
#include "planner/cli_values.h"
#include "planner/render_plan.h"
#include "simulator/group_shape.h"
#include "simulator/nccl_memory.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kDefaultGpu = "H100 SXM";
constexpr int kUsualGpusPerNode = 8;  // Of machines about which nobody says anything before the script runs.
constexpr std::int64_t kFewRanks = 8;
constexpr std::int64_t kMostRanks = 1 << 20;

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string variable_or(const char* name, const std::filesystem::path& otherwise) {
  const std::string value = environment_variable(name);
  return !value.empty() ? value : otherwise.lexically_normal().string();
}

std::optional<RankChoice> read_ranks(const CommandLine& line, Errors& errors) {
  const std::optional<std::string> text = line.value(Option::Rank);
  if (!text) return RankChoice{};
  if (*text == "all") return RankChoice{.kind = RankChoice::Kind::All};
  if (*text == "worst") return RankChoice{.kind = RankChoice::Kind::Worst};
  std::set<std::int64_t> numbers;
  for (std::size_t begin = 0; begin <= text->size();) {
    const std::size_t end = std::min(text->find(',', begin), text->size());
    const std::optional<std::int64_t> number = parse_integer(std::string_view(*text).substr(begin, end - begin));
    if (!number || *number < 0) {
      errors.push_back({"--rank", fmt::format("\"{}\" is not a rank.", text->substr(begin, end - begin)),
                        "Write a number, numbers with commas, all or worst."});
      return std::nullopt;
    }
    numbers.insert(*number);
    begin = end + 1;
  }
  return RankChoice{.kind = RankChoice::Kind::Numbers, .numbers = {numbers.begin(), numbers.end()}};
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

DeviceTerm communicator_term(const Cluster& cluster, int ranks) {
  const auto terms = simulator::nccl_memory({"", simulator::shard_group(cluster, ranks), true});
  // One of its parts is always an estimate.
  return {"NCCL", simulator::total_bytes(terms), Provenance::Assumed,
          fmt::format("rings, trees and queues of a communicator of {} ranks, by NCCL's sources and measured totals",
                      ranks)};
}

std::vector<int> divisors_of(int number) {
  std::set<int> divisors;
  for (int i = 1; i <= number / i; ++i) {
    if (number % i == 0) divisors.insert({i, number / i});
  }
  return {divisors.begin(), divisors.end()};
}

std::vector<CommunicatorMemory> communicators_of(const RehearsalSettings& settings, std::optional<Bytes> given) {
  Cluster cluster = settings.cluster;
  // A script without a launcher may still start ranks of its own.
  if (!settings.counts_given && !settings.launch.gpus_per_node) {
    cluster.gpus_per_node = std::max(cluster.gpus_per_node, kUsualGpusPerNode);
  }
  std::vector<CommunicatorMemory> memory;
  for (const int ranks : divisors_of(world_size(cluster))) {
    DeviceTerm term{"NCCL", Bytes(0), Provenance::Derived, "a communicator of one rank has no buffers"};
    if (given) {
      term = {"NCCL", *given, Provenance::Given, "--nccl-bytes, for each communicator"};
    } else if (ranks > 1) {
      term = communicator_term(cluster, ranks);
    }
    memory.push_back({ranks, std::move(term)});
  }
  return memory;
}

/// The machines, with the launcher's numbers where no option says them.
Result<Cluster> machines_of_script(CommandLine line, const std::string& library, RehearsalSettings& settings) {
  const Launch& launch = settings.launch;
  const auto set = [&](Option option, const std::string& text) {
    line.values[static_cast<std::size_t>(option)] = {text};
  };
  const bool has_counts = line.has(Option::Gpus) || line.has(Option::Nodes);
  const bool launch_counts = launch.gpus_per_node || launch.nodes;
  if (!line.has(Option::Gpus) && launch.gpus_per_node) set(Option::Gpus, fmt::format("{}", *launch.gpus_per_node));
  if (!line.has(Option::Nodes) && launch.nodes) set(Option::Nodes, fmt::format("{}", *launch.nodes));
  // Memory alone does not tell which kernels PyTorch takes, and the oldest GPU of that size may be one it no longer has
  // any for.
  if (!line.has(Option::GpuName) && !line.has(Option::ClusterFile)) {
    set(Option::GpuName, std::string(kDefaultGpu));
    settings.assumptions.push_back(
        line.has(Option::Memory)
            ? fmt::format("No GPU is named, so it is an {} with the memory given; --gpu names yours.", kDefaultGpu)
            : fmt::format("No GPU is named, so it is an {}; --gpu or --mem name yours.", kDefaultGpu));
  }
  // A cluster that is named says how many GPUs there are where the launcher does not.
  settings.counts_given = has_counts || (line.has(Option::ClusterFile) && !launch_counts);
  settings.counts_known = settings.counts_given || launch_counts || launch.is_python;
  if (!launch.counts_by.empty() && !has_counts) {
    settings.assumptions.push_back(fmt::format(
        "{} starts one process per GPU of the machine; their number was not given, so it is 1. Give it with --gpus.",
        launch.counts_by));
  }
  return read_machines(line, library);
}

}  // namespace

void check_places(const RehearsalPlaces& places, bool needs_overlay, Errors& errors) {
  if (!is_there(places.stub)) {
    errors.push_back({places.stub, "The stub GPU is not there: this build left it out, for want of CUDA's headers.",
                      "Run ./scripts/bootstrap --with rehearsal, then build again; or set FSDP_PLAN_STUB_GPU."});
  }
  if (!is_there(places.python + "/hook/sitecustomize.py")) {
    errors.push_back({places.python, "The Python side of rehearsals is not in this folder.",
                      "Set FSDP_PLAN_PYTHON_PATH to the folder that has hook and fsdp_rehearsal."});
  }
  if (needs_overlay && !is_there(places.overlay)) {
    errors.push_back(
        {places.overlay,
         "The library that keeps what the script writes away from your files is not there, and a rehearsed "
         "script overwrites its checkpoints with zeros.",
         "Build it, set FSDP_PLAN_OVERLAY, or take the risk with --allow-writes."});
  }
}

RehearsalPlaces rehearsal_places_of_process() {
  std::error_code error;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path prefix = executable.parent_path().parent_path();
  return {.stub = variable_or("FSDP_PLAN_STUB_GPU", prefix / "lib/fsdp-plan/libfsdp-stub-gpu.so"),
          .python = variable_or("FSDP_PLAN_PYTHON_PATH", prefix / "share/fsdp-plan/python"),
          .overlay = variable_or("FSDP_PLAN_OVERLAY", prefix / "lib/fsdp-plan/libfsdp-overlay.so"),
          .path = variable_or("PATH", "/usr/local/bin:/usr/bin:/bin")};
}

Result<std::vector<std::int64_t>> ranks_of(const RankChoice& choice, std::int64_t world_size,
                                           std::int64_t gpus_per_node) {
  std::set<std::int64_t> ranks;
  Errors errors;
  switch (choice.kind) {
    case RankChoice::Kind::Numbers:
      for (const std::int64_t rank : choice.numbers) {
        if (rank >= world_size) {
          errors.push_back({"--rank", fmt::format("There is no rank {} in a world of {}.", rank, world_size), ""});
        }
        ranks.insert(rank);
      }
      break;
    case RankChoice::Kind::Worst:
      if (world_size > kFewRanks) {
        ranks = {0, 1, world_size / 2, world_size - 1};
        if (gpus_per_node < world_size) ranks.insert(gpus_per_node);
        break;
      }
      [[fallthrough]];
    case RankChoice::Kind::All:
      for (std::int64_t rank = 0; rank < std::min(world_size, kMostRanks); ++rank) ranks.insert(rank);
      break;
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return std::vector<std::int64_t>(ranks.begin(), ranks.end());
}

void read_rehearsal_options(const CommandLine& line, RehearsalSettings& settings, Errors& errors) {
  OptionReader reader(line, errors);
  settings.ranks = read_ranks(line, errors).value_or(RankChoice{});
  settings.steps = reader.count(Option::Steps, 0).value_or(settings.steps);
  settings.timeout = reader.time(Option::Timeout).value_or(settings.timeout);
  using Bound = std::optional<EventBound>;
  settings.bound = one_of<Bound>(line, Option::RecordStream,
                                 {{"auto", Bound()}, {"done", EventBound::Done}, {"hold", EventBound::Hold}}, errors)
                       .value_or(Bound());
  settings.routing = one_of<std::string>(line, Option::Routing, {{"none", "none"}, {"balanced", "balanced"}}, errors)
                         .value_or("balanced");
  settings.allow_writes = line.has(Option::AllowWrites);
  settings.cudnn_workspace = reader.size(Option::CudnnWorkspace);
  settings.snapshot = line.value(Option::Snapshot).value_or("");
  settings.trace = line.value(Option::AllocatorTrace).value_or("");
}

void read_device_terms(const CommandLine& line, RehearsalSettings& settings, Errors& errors) {
  OptionReader reader(line, errors);
  settings.nccl = communicators_of(settings, reader.size(Option::NcclBytes));
  const auto& context = settings.cluster.gpu.context;
  settings.context = {"CUDA context", context.value, context.provenance, context.source};
  if (const std::optional<Bytes> given = reader.size(Option::ContextBytes)) {
    settings.context = {"CUDA context", *given, Provenance::Given, "--context-bytes"};
  }
  const Bytes usable = settings.cluster.gpu.usable_memory.value;
  if (settings.context.bytes >= usable) {
    errors.push_back({"--context-bytes",
                      fmt::format("The CUDA context of {} leaves nothing of the GPU's {}.",
                                  format_bytes(settings.context.bytes), format_bytes(usable)),
                      ""});
  }
}

Result<RehearsalSettings> read_rehearsal(const CommandLine& line, const std::string& library,
                                         const RehearsalPlaces& places) {
  Errors errors;
  RehearsalSettings settings{.places = places, .command = line.script, .launch = read_launch(line.script)};
  check_places(places, !line.has(Option::AllowWrites), errors);
  OptionReader reader(line, errors);
  read_rehearsal_options(line, settings, errors);
  settings.program = reader.keep(find_program(line.script.front(), places.path)).value_or("");
  std::optional<Cluster> cluster = reader.keep(machines_of_script(line, library, settings));
  if (!cluster) {
    for (const Option size : {Option::NcclBytes, Option::ContextBytes}) reader.size(size);
    return tl::unexpected(std::move(errors));
  }
  settings.cluster = *std::move(cluster);
  settings.assumptions.insert(settings.assumptions.end(), settings.cluster.assumptions.begin(),
                              settings.cluster.assumptions.end());
  read_device_terms(line, settings, errors);
  if (settings.counts_known) {
    reader.keep(ranks_of(settings.ranks, world_size(settings.cluster), settings.cluster.gpus_per_node));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return settings;
}

}  // namespace fsdp::planner

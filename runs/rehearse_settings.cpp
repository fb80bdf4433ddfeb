// Device memory outside PyTorch's allocator is charged by given terms: the CUDA context of the GPU's description, and
// for each communicator the memory that simulator/nccl/nccl_memory.h computes for that many neighboring ranks with
// all-reduces. Every divisor of the world is a possible size of a mesh; any other group of a script is charged as the
// whole world.

#include "runs/rehearse_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "core/base/environment.h"
#include "core/base/parse_units.h"
#include "simulator/nccl/group_shape.h"
#include "simulator/nccl/nccl_memory.h"

namespace fsdp::runs {

namespace {

constexpr int kUsualGpusPerNode = 8;  // For unknown machines before the script runs.
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

DeviceTerm communicator_term(const Cluster& cluster, int ranks) {
  const auto terms = simulator::nccl_memory({"", simulator::group_shape(cluster, ranks), true});
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

}  // namespace

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

}  // namespace fsdp::runs

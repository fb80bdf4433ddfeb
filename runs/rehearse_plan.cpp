#include "runs/rehearse_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/environment.h"
#include "core/base/files.h"
#include "core/base/json_writer.h"
#include "core/model/model_json.h"
#include "core/plan/plan_file.h"
#include "core/plan/torch_version.h"
#include "runs/child_process.h"
#include "simulator/nccl/group_shape.h"
#include "simulator/nccl/nccl_memory.h"

namespace fsdp::runs {

namespace {

constexpr std::string_view kJobFormatVersion = "1.0";
constexpr std::string_view kHowToGetTorch = "Run ./scripts/bootstrap --with rehearsal, or name one with --python.";

/// Whether a Python has a module torch. Does not import it, which would take seconds.
bool has_torch(const std::string& python) {
  Supervision supervision;
  auto process = ChildProcess::start(
      {.words = {python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"},
       .output = "/dev/null"});
  if (!process) return false;
  for (int i = 0; i < 100; ++i) {
    if (const auto status = process->poll()) return *status == ExitStatus{};
    if (supervision.wait(Seconds(0.1)) != 0) return false;
  }
  return false;
}

/// The buffers of a communicator as the prediction charges them (simulator/memory/device_terms.h).
void charge(RehearsalSettings& settings, const simulator::NcclCommunicator& communicator) {
  const int ranks = communicator.shape.ranks;
  const Bytes bytes = simulator::total_bytes(simulator::nccl_memory(communicator));
  for (CommunicatorMemory& each : settings.nccl) {
    if (each.ranks != ranks) continue;
    // A shard group and a replicate group of equal size are indistinguishable.
    each.term.bytes = std::max(each.term.bytes, bytes);
    each.term.source = fmt::format("as predicted for the {}", communicator.name);
  }
}

}  // namespace

void charge_groups(RehearsalSettings& settings, const Given& given) {
  const Plan& plan = given.file.plan;
  const int shard = static_cast<int>(plan.mesh.dp_shard());
  const int replicate = static_cast<int>(plan.mesh.dp_replicate());
  for (CommunicatorMemory& each : settings.nccl) {
    if (each.ranks == shard || each.ranks == replicate) each.term.bytes = Bytes(0);
  }
  charge(settings, {"shard group", simulator::group_shape(given.cluster, plan.mesh, ranks_along(MeshAxis::DpShard)),
                    plan.optimizer.clip_grad_norm.has_value()});
  charge(settings, {"replicate group",
                    simulator::group_shape(given.cluster, plan.mesh, ranks_along(MeshAxis::DpReplicate)), true});
}

Result<std::string> find_torch_python(const std::string& given, const RehearsalPlaces& places) {
  if (!given.empty()) {
    FSDP_TRY(std::string python, find_program(given, places.path));
    if (!has_torch(python))
      return failure(
          "--python", fmt::format("{} has no torch.", python),
          fmt::format("Write: {} -m pip install torch=={}.0, or name a Python that has it.", python, kDefaultTorch));
    return python;
  }
  std::vector<std::string> candidates;
  if (const std::string named = environment_variable("FSDP_PLAN_TORCH_PYTHON"); !named.empty()) {
    candidates.push_back(named);
  }
  std::error_code error;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto build = executable.parent_path().parent_path().parent_path();
  candidates.push_back((build / "python/torch-2.11.0/bin/python").string());
  candidates.emplace_back("python3");
  for (const std::string& candidate : candidates) {
    Result<std::string> python = find_program(candidate, places.path);
    if (python && has_torch(*python)) return python;
  }
  return failure("", "No Python with torch was found.", std::string(kHowToGetTorch));
}

Result<void> write_applied_plan(const std::string& path, const Given& given) {
  JsonWriter writer;
  write_plan(writer, given.file.plan, &given.cluster);
  return write_file_atomically(path, std::move(writer).take(), Overwrite::Allow);
}

Result<void> write_applied(RehearsalSettings& settings, const Given& given, const std::string& folder) {
  settings.apply = folder + "/applied.json";
  return write_applied_plan(settings.apply, given);
}

std::string job_text(const Given& given, std::int64_t steps) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("format_version", kJobFormatVersion);
  writer.member("steps", steps);
  writer.key("dimensions");
  writer.begin_object();
  for (const Dimension& each : given.file.plan.dimensions) writer.member(each.name, each.value);
  writer.end_object();
  writer.key("plan");
  write_plan(writer, given.file.plan, &given.cluster);
  writer.key("model");
  write_expanded_model(writer, given.model);
  if (!given.model.beside.empty()) {
    writer.key("also");
    writer.begin_array();
    for (const Model& other : given.model.beside) write_expanded_model(writer, other);
    writer.end_array();
  }
  writer.end_object();
  return std::move(writer).take();
}

}  // namespace fsdp::runs

#include "runs/rehearse_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/environment.h"
#include "core/base/json_writer.h"

namespace fsdp::runs {

namespace {

/// Resident threads per multiprocessor: CUDA C++ Programming Guide, technical specifications per compute capability.
int threads_per_sm(int compute_capability) {
  switch (compute_capability) {
    case 75:
      return 1024;
    case 86:
    case 87:
    case 89:
    case 120:
      return 1536;
    default:
      return 2048;
  }
}

std::string nccl_text(const std::vector<CommunicatorMemory>& memory) {
  std::string text;
  for (const CommunicatorMemory& each : memory) {
    text += fmt::format("{}:{},", each.ranks, each.term.bytes.count());
  }
  if (!memory.empty()) text += fmt::format("*:{}", memory.back().term.bytes.count());
  return text;
}

}  // namespace

std::string driver_name(const Gpu& gpu) {
  for (const std::string& alias : gpu.aliases) {
    if (alias.starts_with("Tesla ")) return alias;
    const bool is_form_factor = alias.find("-SXM4-") != std::string::npos || alias.find("-PCIE-") != std::string::npos;
    if (is_form_factor || alias.starts_with("GeForce ") || alias.ends_with(" HBM3")) return "NVIDIA " + alias;
  }
  return "NVIDIA " + gpu.name;
}

std::vector<std::pair<std::string, std::string>> rehearsal_environment(const RehearsalSettings& settings,
                                                                       const RankJob& job, const RankFiles& files,
                                                                       unsigned threads) {
  const Gpu& gpu = settings.cluster.gpu;
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  const auto bytes = [&](const Sourced<Bytes>& figure) { return number(figure.value.count()); };
  const std::string path = environment_variable("PYTHONPATH");
  // The stub takes both at once.
  const Bytes reserved = reserved_by_others(settings.cluster);
  std::vector<std::pair<std::string, std::string>> result = {
      {"STUB_GPU_NAME", driver_name(gpu)},
      {"STUB_GPU_COMPUTE_CAPABILITY", number(gpu.compute_capability)},
      {"STUB_GPU_SMS", number(gpu.num_sms.value)},
      {"STUB_GPU_L2_BYTES", bytes(gpu.l2_cache)},
      {"STUB_GPU_SHARED_PER_BLOCK_BYTES", bytes(gpu.shared_memory_per_block)},
      {"STUB_GPU_SHARED_PER_SM_BYTES", bytes(gpu.shared_memory_per_sm)},
      {"STUB_GPU_THREADS_PER_SM", number(threads_per_sm(gpu.compute_capability))},
      {"STUB_GPU_BYTES", bytes(gpu.usable_memory)},
      {"STUB_GPU_CONTEXT_BYTES", number((settings.context.bytes + reserved).count())},
      {"STUB_GPU_NCCL_BYTES", nccl_text(settings.nccl)},
      {"STUB_GPU_EVENTS", job.bound == EventBound::Done ? "done" : "hold"},
      {"FSDP_REHEARSAL", "1"},
      {"FSDP_REHEARSAL_STUB", settings.places.stub},
      {"FSDP_REHEARSAL_RECORD", files.record},
      {"FSDP_REHEARSAL_PROGRESS", files.progress},
      {"FSDP_REHEARSAL_STEPS", number(settings.steps)},
      {"FSDP_REHEARSAL_RANK", number(job.rank)},
      {"FSDP_REHEARSAL_ROUTING", settings.routing},
      {"PYTHONPATH", path_list(settings.places.python + "/hook", path)},
      // A crash must not lose earlier output.
      {"PYTHONUNBUFFERED", "1"},
  };
  if (settings.counts_given) {
    result.emplace_back("FSDP_REHEARSAL_WORLD_SIZE", number(world_size(settings.cluster)));
    result.emplace_back("FSDP_REHEARSAL_LOCAL_WORLD_SIZE", number(settings.cluster.gpus_per_node));
  }
  if (settings.counts_known) result.emplace_back("STUB_GPU_COUNT", number(settings.cluster.gpus_per_node));
  if (settings.cudnn_workspace) {
    result.emplace_back("STUB_GPU_CUDNN_WORKSPACE_BYTES", number(settings.cudnn_workspace->count()));
  }
  if (!settings.apply.empty()) {
    result.emplace_back("FSDP_REHEARSAL_APPLY", settings.apply);
    result.emplace_back("FSDP_REHEARSAL_APPLY_NAME", settings.apply_name);
    if (settings.leaves_out_compile) result.emplace_back("FSDP_REHEARSAL_EAGER", "1");
  }
  if (!settings.capture.empty()) {
    JsonWriter command;
    command.begin_array();
    for (const std::string& word : settings.capture_command) command.value(word);
    command.end_array();
    result.emplace_back("FSDP_REHEARSAL_CAPTURE", settings.capture);
    result.emplace_back("FSDP_REHEARSAL_COMMAND", std::move(command).take());
    result.emplace_back("FSDP_REHEARSAL_BATCH_OPTION", settings.capture_batch_option);
  }
  if (!files.snapshot.empty()) result.emplace_back("FSDP_REHEARSAL_SNAPSHOT", files.snapshot);
  if (!files.trace.empty()) result.emplace_back("FSDP_REHEARSAL_TRACE", files.trace);
  if (environment_variable("OMP_NUM_THREADS").empty()) result.emplace_back("OMP_NUM_THREADS", number(threads));
  return result;
}

bool is_misleading(std::string_view name, const RehearsalSettings& settings) {
  if (name.starts_with("FSDP_REHEARSAL") || name.starts_with("FSDP_OVERLAY") || name.starts_with("STUB_GPU_") ||
      name == "CUDA_VISIBLE_DEVICES")
    return true;
  constexpr std::string_view kOfRanks[] = {"RANK",       "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                           "GROUP_RANK", "NODE_RANK"};
  return settings.counts_given && std::find(std::begin(kOfRanks), std::end(kOfRanks), name) != std::end(kOfRanks);
}

}  // namespace fsdp::runs

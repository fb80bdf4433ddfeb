// Between steps the trainer keeps its shards of parameters and optimizer states, unless it moves them to the host, the
// CUDA context and NCCL's buffers. It has emptied the allocator's cache.
//
// Sources: verl 0.9.1, workers/engine_workers.py (update_weights: resume after empty_cache); vllm 0.24,
// v1/worker/utils.py (request_memory: the share of the whole memory).
//
// Not modeled: what the engine keeps when it sleeps; the weights on their way to the engine, a bucket at a time.

#include "planner/jobs/generation_turn.h"

#include <fmt/format.h>

#include "core/base/parse_units.h"

namespace fsdp::planner {

JobPhaseNeed generation_turn(const SleepingEngine& engine, const StepReport& report) {
  const MemoryReport& memory = report.memory;
  const auto of = [&](MemoryCategory category) { return memory.at_peak[static_cast<std::size_t>(category)]; };
  Bytes kept{0};
  if (engine.keeps_parameters) kept += of(MemoryCategory::ShardedParam);
  if (engine.keeps_states) kept += of(MemoryCategory::OptState);
  const Bytes outside = memory.peaks.device - memory.peaks.reserved;
  const auto share = static_cast<std::int64_t>(engine.share * static_cast<double>(memory.budget.count()));
  JobPhaseNeed need{.phase = JobPhase::Generation};
  need.device = MemoryPeaks{.live = kept, .allocated = kept, .reserved = kept, .device = kept + outside + Bytes(share)};
  need.how = fmt::format("{} takes {} beside {} of tensors and {} outside of PyTorch that the trainer keeps",
                         engine.name, format_bytes(Bytes(share)), format_bytes(kept), format_bytes(outside));
  const bool fits = need.device->device <= memory.budget;
  need.on_device.verdict = memory.budget == Bytes(0) ? Verdict::Unknown : fits ? Verdict::Fits : Verdict::DoesNotFit;
  return need;
}

}  // namespace fsdp::planner

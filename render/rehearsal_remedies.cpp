// A script cannot be searched, so each change is priced by the memory that it affects. With
//   S   live parameters, gradients and optimizer states,
//   A   activations,
//   C   the allocator's idle reserve,
// sharding over W times as many GPUs saves S (1 - 1 / W), checkpointing at most A, half the samples A / 2, and segments
// that grow at most C.
//
// Not modeled: the allocations of the step after the point where it ended.

#include "render/rehearsal_remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/base/parse_units.h"

namespace fsdp::render {

namespace {

constexpr Bytes kSmallest{std::int64_t{64} << 20};  // The smallest saving that is worth a line.

Bytes alive(const Rehearsal& seen, std::string_view category) {
  const auto found = std::find_if(seen.categories.begin(), seen.categories.end(),
                                  [&](const PeakCategory& each) { return each.name == category; });
  return found == seen.categories.end() ? Bytes(0) : found->bytes;
}

bool is_sharded(const Rehearsal& seen) {
  return std::any_of(seen.wrappers.begin(), seen.wrappers.end(),
                     [](const AppliedWrapper& each) { return each.name != "plain" && each.name != "DDP"; });
}

bool recomputes(const Rehearsal& seen) {
  return std::any_of(seen.techniques.begin(), seen.techniques.end(),
                     [](const std::string& each) { return each.starts_with("recomputation"); });
}

}  // namespace

std::vector<std::string> remedies_of_rehearsal(const StepReport& report) {
  if (report.verdict != Verdict::DoesNotFit) return {};
  const Rehearsal& seen = *report.rehearsal;
  const std::int64_t gpus = static_cast<std::int64_t>(report.gpus_per_node) * report.nodes;
  const Bytes states = alive(seen, "parameters") + alive(seen, "gradients") + alive(seen, "optimizer states");
  const Bytes activations = alive(seen, "activations");
  const Bytes cached = report.memory.peaks.reserved - report.memory.peaks.allocated;
  std::vector<std::pair<Bytes, std::string>> found;
  if (!is_sharded(seen) && gpus > 1) {
    found.emplace_back(Bytes(states.count() - states.count() / gpus),
                       fmt::format("shard the model over the {} GPUs (fully_shard)", gpus));
  } else {
    found.emplace_back(Bytes(states.count() / 2), fmt::format("shard the model over {} GPUs{}", 2 * gpus,
                                                              is_sharded(seen) ? "" : " (fully_shard)"));
  }
  if (!recomputes(seen)) {
    found.emplace_back(activations, "checkpoint activations (torch.utils.checkpoint): a second forward of each block");
  }
  found.emplace_back(Bytes(activations.count() / 2),
                     "half the samples of a micro-batch, and twice as many micro-batches");
  found.emplace_back(cached, "PYTORCH_ALLOC_CONF=expandable_segments:True: what was reserved and not allocated");
  std::erase_if(found, [](const auto& each) { return each.first < kSmallest; });
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> lines;
  for (const auto& [saved, what] : found) lines.push_back(fmt::format("-{} at most: {}", format_bytes(saved), what));
  lines.emplace_back("--mem 900G rehearses it to its end, and says what it takes");
  return lines;
}

}  // namespace fsdp::render

#include "planner/advice/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/base/parse_units.h"

namespace fsdp::planner {

namespace {

constexpr std::size_t kMostTerms = 3;

/// "Activation 5.1 GiB, OptState 2.7 GiB and Sharded Param 1.4 GiB": the largest terms.
std::string largest_terms(const BytesByCategory& bytes) {
  std::array<int, kNumMemoryCategories> order{};
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int category) { return bytes[static_cast<std::size_t>(category)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return at(a) > at(b); });
  std::string text;
  for (std::size_t i = 0; i < kMostTerms && at(order[i]) > Bytes(0); ++i) {
    const bool is_last = i + 1 == kMostTerms || at(order[i + 1]) == Bytes(0);
    text += i == 0 ? "" : is_last ? " and " : ", ";
    text += fmt::format("{} {}", name_of(static_cast<MemoryCategory>(order[i])), format_bytes(at(order[i])));
  }
  return text;
}

}  // namespace

std::string binding_of(const StepReport& report) {
  const MemoryReport& memory = report.memory;
  const std::string unit = memory.peak.unit.empty() ? "the root" : memory.peak.unit;
  std::string moment = memory.peak.instruction;
  if (!memory.peak.op.empty()) moment += fmt::format(" ({})", memory.peak.op);
  const Bytes outside = memory.peaks.device - memory.peaks.reserved;
  const Bytes held = memory.peaks.reserved - memory.peaks.live;
  return fmt::format(
      "The peak of {} is reached in {}, at {} (unit: {}). Live tensors take {}; the largest are {}. The allocator "
      "holds "
      "{} more, and {} lie outside PyTorch.",
      format_bytes(memory.peaks.device), name_of(memory.peak.phase), moment, unit, format_bytes(memory.peaks.live),
      largest_terms(memory.at_peak), format_bytes(held), format_bytes(outside));
}

std::vector<Candidate> nearest_rejected(std::vector<Candidate> candidates, const Candidate& best, Verdict verdict) {
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return candidate.missing <= Bytes(0) || candidate.plan == best.plan ||
           (verdict == Verdict::Fits && candidate.step > best.step);
  });
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.missing < b.missing; });
  if (candidates.size() > kMostRejected) candidates.resize(kMostRejected);
  return candidates;
}

}  // namespace fsdp::planner

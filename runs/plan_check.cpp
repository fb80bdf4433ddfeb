#include "runs/plan_check.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "core/spec/captured_model.h"

namespace fsdp::runs {

namespace {

constexpr std::string_view kCount = " count";
constexpr std::string_view kPayload = " payload";
/// Largest payload of a collective that only exchanges numbers. A real model's unit moves more.
constexpr std::int64_t kToldBytes = 1024;

const ComparedTerm* payload_of(const std::string& kind, const std::vector<ComparedTerm>& terms) {
  const std::string name = kind + std::string(kPayload);
  const auto found =
      std::find_if(terms.begin(), terms.end(), [&](const ComparedTerm& term) { return term.name == name; });
  return found == terms.end() ? nullptr : &*found;
}

// Missing collectives, and extra ones that move much, are errors of the prediction. A few small extra ones are not, nor
// are those that the capture saw.
void find_collectives_beside(PlanCheck& check, const std::vector<std::string>& own) {
  double moved = 0;
  for (const ComparedTerm& term : check.terms) {
    if (term.name.ends_with(kPayload)) moved += static_cast<double>(term.measured);
  }
  for (const ComparedTerm& term : check.terms) {
    if (!term.name.ends_with(kCount) || term.measured <= term.predicted) continue;
    const std::string kind = term.name.substr(0, term.name.size() - kCount.size());
    const ComparedTerm* payload = payload_of(kind, check.terms);
    if (payload == nullptr || payload->measured < payload->predicted) continue;
    const std::int64_t bytes = payload->measured - payload->predicted;
    const std::int64_t count = term.measured - term.predicted;
    const bool is_told = bytes <= kToldBytes * count && static_cast<double>(bytes) <= kPlanTolerance * moved;
    if (!is_told && count != std::count(own.begin(), own.end(), kind)) continue;
    check.kinds_beside.push_back(kind);
    check.collectives_beside += count;
    check.bytes_beside += Bytes(bytes);
  }
}

/// Whether a term belongs to the collectives of one of these kinds.
bool is_of(const ComparedTerm& term, const std::vector<std::string>& kinds) {
  return std::any_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
    return term.name == kind + std::string(kCount) || term.name == kind + std::string(kPayload);
  });
}

bool is_of_collectives(const ComparedTerm& term) {
  return term.name.ends_with(kCount) || term.name.ends_with(kPayload);
}

bool may_differ(const ComparedTerm& term, const PlanCheck& check, std::optional<double> tolerance) {
  if (is_of_collectives(term)) return is_of(term, check.kinds_beside);
  if (std::abs(term.relative()) <= tolerance.value_or(kPlanTolerance)) return true;
  return !tolerance && (term.name.ends_with("reserved peak") || term.name.ends_with("device peak"));
}

}  // namespace

std::vector<std::string> own_collectives(const Given& given) {
  std::vector<std::string> own;
  if (given.spec.captured == nullptr) return own;
  const std::vector<std::string>& kinds = given.spec.captured->own_collectives;
  for (std::int64_t micro_batch = 0; micro_batch < given.file.plan.accumulation; ++micro_batch)
    own.insert(own.end(), kinds.begin(), kinds.end());
  return own;
}

PlanCheck checked(const Comparison& comparison, const Cluster& cluster, std::optional<double> tolerance,
                  const std::vector<std::string>& own) {
  PlanCheck check;
  check.gpus = world_size(cluster);
  for (const ComparedTerm& term : comparison.terms) {
    if (tolerance || term.name.starts_with("steady step:") || term.unit == TermUnit::Count || is_of_collectives(term)) {
      check.terms.push_back(term);
    }
  }
  find_collectives_beside(check, own);
  for (const ComparedTerm& term : check.terms) {
    if (term.difference() != 0 && !may_differ(term, check, tolerance)) check.beyond.push_back(term);
  }
  std::stable_partition(check.beyond.begin(), check.beyond.end(), is_of_collectives);
  return check;
}

}  // namespace fsdp::runs

#include "runs/capture_check.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::planner {

namespace {

constexpr std::string_view kCount = " count";
constexpr std::string_view kPayload = " payload";
/// Of a collective that tells numbers, at most. A unit of a model that is trained for a purpose moves more.
constexpr std::int64_t kToldBytes = 1024;

const ComparedTerm* payload_of(const std::string& kind, const std::vector<ComparedTerm>& terms) {
  const std::string name = kind + std::string(kPayload);
  const auto found =
      std::find_if(terms.begin(), terms.end(), [&](const ComparedTerm& term) { return term.name == name; });
  return found == terms.end() ? nullptr : &*found;
}

// Collectives that are missing, or that move much, are errors of the prediction. A few small ones more are none.
void find_collectives_beside(CaptureCheck& check) {
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
    if (bytes > kToldBytes * count || static_cast<double>(bytes) > kCaptureTolerance * moved) continue;
    check.kinds_beside.push_back(kind);
    check.collectives_beside += count;
    check.bytes_beside += Bytes(bytes);
  }
}

}  // namespace

bool CaptureCheck::holds() const {
  return !has_failed && std::all_of(terms.begin(), terms.end(), [&](const ComparedTerm& term) {
    const bool is_beside = std::any_of(kinds_beside.begin(), kinds_beside.end(), [&](const std::string& kind) {
      return term.name.starts_with(kind) &&
             (term.name.substr(kind.size()) == kCount || term.name.substr(kind.size()) == kPayload);
    });
    const bool is_shown_only = is_beside || term.name.ends_with("reserved peak") || term.name.ends_with("device peak");
    return is_shown_only || std::abs(term.relative()) <= kCaptureTolerance;
  });
}

CaptureCheck checked(const Comparison& comparison, const Cluster& cluster) {
  CaptureCheck check;
  check.gpus = world_size(cluster);
  for (const ComparedTerm& term : comparison.terms) {
    if (term.name.starts_with("steady step:") || term.unit == TermUnit::Count || term.name.ends_with(" payload")) {
      check.terms.push_back(term);
    }
  }
  find_collectives_beside(check);
  return check;
}

}  // namespace fsdp::planner

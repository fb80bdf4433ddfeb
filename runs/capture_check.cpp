#include "runs/capture_check.h"

#include <algorithm>
#include <cmath>

namespace fsdp::planner {

bool CaptureCheck::holds() const {
  return !has_failed && std::all_of(terms.begin(), terms.end(), [](const ComparedTerm& term) {
    const bool is_shown_only = term.name.ends_with("reserved peak") || term.name.ends_with("device peak");
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
  return check;
}

}  // namespace fsdp::planner

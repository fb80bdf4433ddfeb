// We predict the plan once more, for the newest release, and compare the two reports: the bytes that a rank sends by
// kind of collective, the device peak, the verdict. A line reports bytes that change by 1 % or more, a verdict that
// changes, and a peak that rises by 1 % or more. It mentions a falling peak only together with one of those.
//
// If reductions send more, we predict the plan a third time with the current dtype of the reductions as an explicit
// option. If that restores the traffic, the sentence includes the option.

#include "planner/advice/upgrade_note.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/parse_units.h"
#include "core/base/result.h"
#include "core/base/units.h"
#include "core/frameworks/layout.h"
#include "core/model/model_index.h"
#include "core/plan/framework_traits.h"
#include "core/plan/sharding.h"
#include "core/plan/torch_version.h"
#include "core/report/device_verdict.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

namespace {

constexpr double kWorthALine = 0.01;

Bytes sent(const StepReport& report, CollectiveKind kind) {
  return report.traffic.totals[static_cast<std::size_t>(kind)].sent_per_rank;
}

bool is_larger(Bytes after, Bytes before) {
  return static_cast<double>(after.count()) > (1 + kWorthALine) * static_cast<double>(before.count());
}

/// The dtype in which all units of the plan are reduced, if it is the same.
std::optional<Dtype> reduced_in(const Plan& plan, const Model& model) {
  const auto layout = make_layout(index_of(model), plan);
  if (!layout) return std::nullopt;
  std::optional<Dtype> dtype;
  for (const ShardedUnit& unit : layout->units) {
    if (unit.reduced_full_elements == 0) continue;
    if (dtype && *dtype != unit.reduce_dtype) return std::nullopt;
    dtype = unit.reduce_dtype;
  }
  return dtype;
}

/// "; --reduce-dtype bfloat16 keeps that as it is".
std::string remedy_of(const Plan& plan, const Plan& upgraded, const StepReport& report,
                      simulator::Predictor& predictor) {
  const std::optional<Dtype> dtype = reduced_in(plan, predictor.model());
  if (!dtype || upgraded.mixed_precision.reduce_dtype) return {};
  Plan named = upgraded;
  named.mixed_precision.reduce_dtype = dtype;
  const Result<StepReport> kept = predictor.report(named);
  if (!kept || sent(*kept, CollectiveKind::ReduceScatter) != sent(report, CollectiveKind::ReduceScatter)) return {};
  return fmt::format("; {} {} keeps it", place_of(PlanChoice::ReduceDtype), name_of(*dtype));
}

std::string memory_of(const StepReport& before, const StepReport& after) {
  const Bytes change = after.memory.peaks.device - before.memory.peaks.device;
  if (change == Bytes(0)) return {};
  return fmt::format("needs {} {}", format_bytes(change < Bytes(0) ? -change : change),
                     change < Bytes(0) ? "less" : "more");
}

}  // namespace

std::string upgrade_note(const Plan& plan, const StepReport& report, simulator::Predictor& predictor) {
  const TorchVersion& newest = newest_torch_version();
  if (torch_version_of(plan.runtime).name == newest.name || !traits_of(plan).pinned.empty()) return {};
  Plan upgraded = plan;
  set_torch_version(upgraded.runtime, newest);
  const Result<StepReport> after = predictor.report(upgraded);
  if (!after) return {};
  std::vector<std::string> changes;
  for (const CollectiveKind kind :
       {CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllReduce}) {
    const Bytes now = sent(report, kind);
    const Bytes then = sent(*after, kind);
    if (!is_larger(then, now) && !is_larger(now, then)) continue;
    changes.push_back(fmt::format(
        "sends {} by {} where {} are sent now{}", format_bytes(then), name_of(kind), format_bytes(now),
        kind == CollectiveKind::ReduceScatter && then > now ? remedy_of(plan, upgraded, report, predictor) : ""));
  }
  const bool has_traffic = !changes.empty();
  // The margin grows for a release that is less well known; the release does not cause that change.
  const auto holds = [&](const StepReport& of) {
    MemoryReport memory = of.memory;
    memory.margin = report.memory.margin;
    memory.held = report.memory.held;
    return device_verdict_of(memory).verdict == Verdict::Fits;
  };
  const bool fits_then = holds(*after);
  const bool is_other_verdict = fits_then != holds(report);
  const bool needs_more = is_larger(after->memory.peaks.device, report.memory.peaks.device);
  if (!has_traffic && !is_other_verdict && !needs_more) return {};
  if (const std::string memory = memory_of(report, *after); !memory.empty()) changes.insert(changes.begin(), memory);
  std::string text = fmt::format("PyTorch {} {}", newest.name, fmt::join(changes, ", "));
  if (is_other_verdict) text += fits_then ? ", and fits" : ", and does not fit";
  return text + ".";
}

}  // namespace fsdp::planner

#include "render/render_runtimes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/base/parse_units.h"
#include "core/plan/framework_traits.h"
#include "render/render_search.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

std::vector<text::Cell> row_of(const planner::ComparedRuntime& runtime, bool with_host, std::size_t num_columns) {
  const std::string name(traits_of(runtime.framework).title);
  std::vector<text::Cell> row = {{name, name}};
  if (!runtime.why_not.empty()) {
    row.resize(num_columns);
    row.back() = {runtime.why_not, runtime.why_not, text::Style::Warning};
    return row;
  }
  row.push_back(text::cell(runtime.device_peak));
  row.push_back(text::cell(runtime.needed));
  row.push_back(text::cell(runtime.step));
  row.push_back(text::cell(runtime.sent));
  row.push_back(text::cell(runtime.collectives));
  if (with_host) row.push_back(runtime.host > Bytes(0) ? text::cell(runtime.host) : text::Cell());
  row.push_back(verdict_cell(runtime.verdict, runtime.is_tight));
  row.push_back({runtime.label, runtime.label});  // Last: it may be wider than the screen.
  return row;
}

text::Table table_of(const std::vector<planner::ComparedRuntime>& runtimes) {
  const bool with_host = std::any_of(runtimes.begin(), runtimes.end(),
                                     [](const planner::ComparedRuntime& runtime) { return runtime.host > Bytes(0); });
  text::Table table{.name = "runtimes",
                    .columns = {{"runtime", "runtime"},
                                {"peak", "device_peak_bytes", true},
                                {"+ margin", "needed_bytes", true},
                                {"step", "step", true},
                                {"sent/GPU", "sent_per_gpu_bytes", true},
                                {"calls", "collectives", true}}};
  if (with_host) table.columns.push_back({"host/node", "host_bytes", true});
  table.columns.push_back({"", "verdict"});
  table.columns.push_back({"plan", "plan"});
  for (const planner::ComparedRuntime& runtime : runtimes)
    table.rows.push_back(row_of(runtime, with_host, table.columns.size()));
  return table;
}

double sample_time(const planner::ComparedRuntime& runtime) {
  return runtime.step.count() / static_cast<double>(runtime.samples);
}

/// The advantage of the best one over the next that fits. Compares required memory, margins included.
std::string why_of(const planner::ComparedRuntime& best, const planner::ComparedRuntime& next) {
  const double faster = sample_time(next) / sample_time(best) - 1;
  const bool is_smaller = best.needed < next.needed;
  const Bytes apart = is_smaller ? next.needed - best.needed : best.needed - next.needed;
  const std::string speed =
      faster >= 0 ? fmt::format("{} faster", text::percent(faster)) : fmt::format("{} slower", text::percent(-faster));
  return fmt::format("{} than {} and needs {} {} with its safety margin", speed, traits_of(next.framework).title,
                     format_bytes(apart), is_smaller ? "less" : "more");
}

std::string sentence_of(const planner::RuntimeComparison& comparison) {
  const std::vector<planner::ComparedRuntime>& runtimes = comparison.runtimes;
  const auto fits = [](const planner::ComparedRuntime& runtime) {
    return runtime.why_not.empty() && runtime.verdict == Verdict::Fits;
  };
  const planner::ComparedRuntime& best = runtimes.front();
  const std::string name(traits_of(best.framework).title);
  if (!fits(best)) return fmt::format("No plan fits with any; {} comes nearest", name);
  if (runtimes.size() > 1 && fits(runtimes[1])) return fmt::format("{} is {}", name, why_of(best, runtimes[1]));
  const bool is_only_asked = std::all_of(runtimes.begin() + 1, runtimes.end(),
                                         [](const planner::ComparedRuntime& other) { return !other.why_not.empty(); });
  if (is_only_asked) return fmt::format("Only {} can train this as asked", name);
  return fmt::format("{} is the only one with a plan that fits", name);
}

}  // namespace

text::Entry entry_of(const planner::RuntimeComparison& comparison) {
  return {.label = "runtime", .lines = {sentence_of(comparison) + "."}};
}

text::Document document_of(const planner::RuntimeComparison& comparison, const View& view,
                           const AnswerContext& context) {
  text::Document document = document_of(comparison.result, view, context);
  const text::Section sections[] = {entry_of(comparison), table_of(comparison.runtimes)};
  document.insert(document.begin() + 1, std::begin(sections), std::end(sections));
  return document;
}

}  // namespace fsdp::render

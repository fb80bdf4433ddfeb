#include "render/render_machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/parse_units.h"
#include "render/render_search.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

constexpr double kThousand = 1000;

bool has_prices(const std::vector<planner::ComparedMachine>& machines) {
  return std::any_of(machines.begin(), machines.end(),
                     [](const planner::ComparedMachine& machine) { return machine.price_per_hour.has_value(); });
}

/// Three significant digits: "1.83", "12.3", "1234".
text::Cell short_cell(double value) {
  return {value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:#.3g}", value), fmt::format("{:.6g}", value)};
}

std::vector<text::Cell> row_of(const planner::ComparedMachine& machine, bool with_prices, std::size_t num_columns) {
  std::vector<text::Cell> row = {machine.name};
  if (!machine.why_not.empty()) {
    row.resize(num_columns);
    row.back() = {machine.why_not, machine.why_not, text::Style::Warning};
    return row;
  }
  row.push_back(text::cell(machine.device_peak));
  row.push_back(text::cell(machine.step));
  row.push_back(short_cell(machine.samples_per_second()));
  row.push_back(short_cell(machine.gpu_seconds_per_sample()));
  if (with_prices)
    row.push_back(machine.price_per_hour ? short_cell(*machine.price_per_sample() * kThousand) : text::Cell());
  row.push_back(verdict_cell(machine.verdict, machine.is_tight));
  return row;
}

text::Table table_of(const std::vector<planner::ComparedMachine>& machines) {
  const bool with_prices = has_prices(machines);
  text::Table table{.name = "machines",
                    .columns = {{"machine", "machine"},
                                {"peak", "device_peak_bytes", true},
                                {"step", "step", true},
                                {"samples/s", "samples_per_second", true},
                                {"GPU-s/sample", "gpu_seconds_per_sample", true}}};
  if (with_prices) table.columns.push_back({"price/1,000", "price_per_1000_samples", true});
  table.columns.push_back({"", "verdict"});
  for (const planner::ComparedMachine& machine : machines)
    table.rows.push_back(row_of(machine, with_prices, table.columns.size()));
  return table;
}

/// "4x T4 is the fastest, 12.3 samples a second; a plan fits on 2 of 6 machines".
std::string sentence_of(const planner::MachineComparison& comparison, planner::MachineObjective objective) {
  const std::vector<planner::ComparedMachine>& machines = comparison.machines;
  const auto num_fitting = std::count_if(machines.begin(), machines.end(), [](const planner::ComparedMachine& machine) {
    return machine.why_not.empty() && machine.verdict == Verdict::Fits;
  });
  const std::string all = text::counted(static_cast<std::int64_t>(machines.size()), "machine");
  const planner::ComparedMachine& best = machines.front();
  if (num_fitting == 0) return fmt::format("{} comes nearest of {}; no plan fits on any", best.name, all);
  const std::optional<double> price = best.price_per_sample();
  std::string why = fmt::format("fastest, {} samples a second", short_cell(best.samples_per_second()).text);
  if (objective == planner::MachineObjective::Cost) {
    why = price ? fmt::format("cheapest, {} for 1,000 samples", short_cell(*price * kThousand).text)
                : fmt::format("cheapest, {} GPU-seconds a sample", short_cell(best.gpu_seconds_per_sample()).text);
  }
  return fmt::format("{} is the {}; a plan fits on {} of {}", best.name, why, num_fitting, all);
}

}  // namespace

text::Entry entry_of(const planner::MachineComparison& comparison, planner::MachineObjective objective) {
  return {.label = "machine", .lines = {sentence_of(comparison, objective) + "."}};
}

text::Document document_of(const planner::MachineComparison& comparison, planner::MachineObjective objective,
                           const View& view, const AnswerContext& context) {
  text::Document document = document_of(comparison.result, view, context);
  const text::Section sections[] = {entry_of(comparison, objective), table_of(comparison.machines)};
  document.insert(document.begin() + 1, std::begin(sections), std::end(sections));
  return document;
}

}  // namespace fsdp::render

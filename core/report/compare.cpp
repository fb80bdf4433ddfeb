#include "core/report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/report/report_fields.h"

namespace fsdp {

namespace {

class TermList {
 public:
  void bytes(std::string name, Bytes predicted, Bytes measured) {
    terms_.push_back({std::move(name), TermUnit::Bytes, predicted.count(), measured.count()});
  }
  void count(std::string name, std::int64_t predicted, std::int64_t measured) {
    terms_.push_back({std::move(name), TermUnit::Count, predicted, measured});
  }

  // A figure that one of the two lacks, such as the segments without an allocator, is no term. PyTorch counts memory
  // that waits for another stream as requested, but not as allocated, so its figure then exceeds the live bytes.
  void peaks(const std::string& phase, const MemoryPeaks& predicted, const MemoryPeaks& measured, bool waits) {
    const auto peak = [&](const char* what, Bytes first, Bytes second) {
      if (first >= Bytes(0) && second >= Bytes(0)) bytes(phase + what, first, second);
    };
    peak("device peak", predicted.device, measured.device);
    peak("reserved peak", predicted.reserved, measured.reserved);
    peak("allocated peak", predicted.allocated, measured.allocated);
    if (!waits) peak("live peak", predicted.live, measured.live);
  }

  std::vector<ComparedTerm> take() && { return std::move(terms_); }

 private:
  std::vector<ComparedTerm> terms_;
};

const PhasePeaks* find_phase(const std::vector<PhasePeaks>& phases, RunPhase wanted) {
  const auto found = std::find_if(phases.begin(), phases.end(), [&](const auto& each) { return each.phase == wanted; });
  return found == phases.end() ? nullptr : &*found;
}

// The purpose of a script's collectives is unknown.
bool knows_groups(const TrafficReport& traffic) {
  return std::any_of(traffic.collectives.begin(), traffic.collectives.end(),
                     [](const Collective& collective) { return collective.group != MeshDimension::Other; });
}

// A run that ended in its initialization or first step has no traffic of a step, and its peak is not a step's.
bool has_a_step(const StepReport& report) {
  return !report.rehearsal || report.rehearsal->steps > 0;
}

// Whether streams other than their maker's used blocks of this run (record_stream), as in FSDP1.
bool waits_for_streams(const StepReport& report) {
  return report.rehearsal && report.rehearsal->limits.allocator_event_queries > 0;
}

bool knows_categories(const MemoryReport& memory) {
  return std::any_of(memory.at_peak.begin(), memory.at_peak.end(), [](Bytes bytes) { return bytes > Bytes(0); });
}

// Whether the order of the two lists is comparable: both are of a plan. A framework's own run does not report units,
// and a script has collectives of its own.
bool have_one_order(const StepReport& predicted, const StepReport& measured) {
  if (!knows_groups(predicted.traffic)) return false;
  return knows_groups(measured.traffic) || (!measured.rehearsal && !measured.traffic.collectives.empty());
}

// The number of collectives that are equal at the same index: kind, dtype, elements, payload and size of the group;
// unit and phase if both know them.
std::int64_t same_collectives(const TrafficReport& predicted, const TrafficReport& measured) {
  const std::size_t common = std::min(predicted.collectives.size(), measured.collectives.size());
  std::int64_t same = 0;
  for (std::size_t i = 0; i < common; ++i) {
    const Collective& a = predicted.collectives[i];
    const Collective& b = measured.collectives[i];
    const bool is_there = b.group == MeshDimension::Other || (a.unit == b.unit && a.phase == b.phase);
    same += is_there && a.kind == b.kind && a.dtype == b.dtype && a.elements == b.elements && a.payload == b.payload &&
            (a.group_size == b.group_size || b.group_size < 0);
  }
  return same;
}

std::vector<std::string> notes_on(const StepReport& predicted, const StepReport& measured) {
  std::vector<std::string> notes;
  const auto world = [](const StepReport& report) { return report.gpus_per_node * report.nodes; };
  if (world(predicted) != world(measured)) {
    notes.push_back(
        fmt::format("The first report has {} ranks, the second has {}.", world(predicted), world(measured)));
  }
  const bool know_budgets = predicted.memory.budget > Bytes(0) && measured.memory.budget > Bytes(0);
  if (know_budgets && predicted.memory.budget != measured.memory.budget) {
    notes.push_back(fmt::format("The first report has a GPU with {} bytes, the second one with {}.",
                                predicted.memory.budget.count(), measured.memory.budget.count()));
  }
  const bool know_verdicts = predicted.verdict != Verdict::Unknown && measured.verdict != Verdict::Unknown;
  if (know_verdicts && predicted.verdict != measured.verdict) {
    notes.push_back(
        fmt::format("The verdicts differ: \"{}\" and \"{}\".", name_of(predicted.verdict), name_of(measured.verdict)));
  }
  if (measured.rehearsal && !has_a_step(measured)) {
    notes.emplace_back("The second run ended before its first step did: its peaks are those until then.");
  }
  return notes;
}

}  // namespace

double ComparedTerm::relative() const {
  if (predicted == measured) return 0;
  if (measured == 0) return std::numeric_limits<double>::infinity() * (predicted > 0 ? 1 : -1);
  // As doubles: sums of bytes are far below the limit, but differences of counts may exceed 64 bits.
  return (static_cast<double>(predicted) - static_cast<double>(measured)) / std::abs(static_cast<double>(measured));
}

Comparison compare(const StepReport& predicted, const StepReport& measured) {
  TermList list;
  const bool waits = waits_for_streams(predicted) != waits_for_streams(measured);
  list.peaks("", predicted.memory.peaks, measured.memory.peaks, waits);
  for (const PhasePeaks& phase : predicted.memory.phases) {
    const PhasePeaks* same = find_phase(measured.memory.phases, phase.phase);
    if (same == nullptr) continue;
    list.peaks(title_of(phase.phase) + ": ", phase.peaks, same->peaks, waits);
  }
  const bool have_steps = has_a_step(predicted) && has_a_step(measured);
  for (std::size_t i = 0; have_steps && i < predicted.traffic.totals.size(); ++i) {
    const TrafficTotal& first = predicted.traffic.totals[i];
    const TrafficTotal& second = measured.traffic.totals[i];
    if (first.count == 0 && second.count == 0) continue;
    const std::string kind(name_of(static_cast<CollectiveKind>(i)));
    list.count(kind + " count", first.count, second.count);
    list.bytes(kind + " payload", first.payload, second.payload);
  }
  if (have_steps && knows_categories(predicted.memory) && knows_categories(measured.memory)) {
    for (std::size_t i = 0; i < predicted.memory.at_peak.size(); ++i) {
      const Bytes first = predicted.memory.at_peak[i];
      const Bytes second = measured.memory.at_peak[i];
      if (first == Bytes(0) && second == Bytes(0)) continue;
      list.bytes(fmt::format("at peak: {}", name_of(static_cast<MemoryCategory>(i))), first, second);
    }
  }
  if (have_steps && have_one_order(predicted, measured)) {
    const auto count = static_cast<std::int64_t>(predicted.traffic.collectives.size());
    list.count("collectives as predicted", count, same_collectives(predicted.traffic, measured.traffic));
  }
  list.count("parameters", predicted.parameters, measured.parameters);
  list.count("trainable parameters", predicted.trainable_parameters, measured.trainable_parameters);

  Comparison comparison{.terms = std::move(list).take(), .notes = notes_on(predicted, measured)};
  std::stable_sort(comparison.terms.begin(), comparison.terms.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.relative()) > std::abs(b.relative()); });
  return comparison;
}

bool is_within(const Comparison& comparison, double tolerance) {
  return std::all_of(comparison.terms.begin(), comparison.terms.end(),
                     [&](const ComparedTerm& term) { return std::abs(term.relative()) <= tolerance; });
}

namespace {

constexpr EnumName<TermUnit> kTermUnits[] = {{TermUnit::Bytes, "bytes"}, {TermUnit::Count, "count"}};
constexpr EnumTable<TermUnit> kTermUnitTable{"unit", kTermUnits};

}  // namespace

template <Like<ComparedTerm> S>
static void fields_of(Fields& fields, S& term) {
  fields.required("name", "The term's name.", term.name);
  fields.required("unit", "The unit of the values.", term.unit, kTermUnitTable);
  fields.required("predicted", "The value in the first report.", term.predicted);
  fields.required("measured", "The value in the second report.", term.measured);
  // These two follow from the others, but may contradict them in a file.
  constexpr bool kWrites = std::is_const_v<S>;
  ConstAs<S, std::int64_t> difference = kWrites ? term.difference() : 0;
  ConstAs<S, double> relative = kWrites ? term.relative() : 0;
  fields.optional_if(true, "difference", "Predicted less measured.", difference);
  fields.optional_if(true, "relative", "The difference over the measured value; null: nothing was measured.", relative,
                     kNullIfNotFinite);
}

static void comparison_fields(Fields& fields, Like<Comparison> auto& comparison) {
  fields.required("terms", "Worst first.", comparison.terms, JsonLayout::OneLine);
  fields.optional("notes", "Reasons that the two may not be about the same run.", comparison.notes);
  fields.optional("beyond_tolerance", "Names of terms outside their tolerance: the exit code is 1.", comparison.beyond);
}

void fields_of(Fields& fields, Comparison& comparison) {
  comparison_fields(fields, comparison);
}
void fields_of(Fields& fields, const Comparison& comparison) {
  comparison_fields(fields, comparison);
}

Result<std::optional<Comparison>> read_comparison(const JsonDocument& report) {
  const JsonValue* member = report.root.find("comparison");
  if (member == nullptr) return std::optional<Comparison>();
  JsonErrors errors(report);
  Comparison comparison;
  read_json(*member, comparison, errors, JsonLayout::Lines);
  return std::move(errors).result(std::optional(std::move(comparison)));
}

}  // namespace fsdp

#include "render/render_brief.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/parse_units.h"
#include "core/formats/hf_config.h"
#include "render/choice_words.h"
#include "render/render_policy.h"
#include "render/render_report.h"
#include "render/render_search.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

constexpr int kIndent = 8;  // Of the texts beside the labels.
constexpr std::size_t kMostLines = 12;
constexpr std::size_t kPeakLines = 2;
constexpr std::size_t kMostSuggestions = 3;
constexpr std::size_t kFewestSuggestions = 2;
constexpr std::size_t kMostTensors = 6;
/// Options that are longer are left to the verbose answer.
constexpr int kWidestOption = 40;
/// Part of the peak that a suggestion must save when it does not make the plan fit.
constexpr double kGoodDeal = 0.05;

constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kInstructions = {{
    {"Forward", "forward pass of"},
    {"Backward", "backward pass of"},
    {"Unshard", "all-gather of"},
    {"WaitForUnshard", "all-gather of"},
    {"AccumulateGrads", "gradient accumulation of"},
    {"ReduceGrads", "gradient reduction of"},
    {"LimitGathers", "limit of all-gathers at"},
    {"FlattenGrads", "gradient reduction of"},
    {"FinishReduce", "gradient reduction of"},
    {"PrepareReduce", "begin of the backward pass"},
    {"ReduceBucket", "gradient reduction"},
    {"ReduceUsedMap", "gradient reduction"},
    {"CheckOverflow", "overflow check"},
    {"GatherParameters", "all-gather of parameters"},
    {"FetchParameters", "all-gather of parameters"},
    {"WaitForParameters", "all-gather of parameters"},
    {"DropFetched", "all-gather of parameters"},
    {"ReleaseParameters", "release of parameters"},
    {"SyncBuffers", "broadcast of buffers"},
    {"ClipGradNorm", "gradient clipping"},
    {"OptimizerStep", "optimizer step"},
}};

/// "backward pass of model.layers.3" for "Backward model.layers.3".
std::string in_words(const std::string& instruction) {
  const std::size_t space = std::min(instruction.find(' '), instruction.size());
  for (const auto& [name, words] : kInstructions) {
    if (instruction.substr(0, space) == name) return std::string(words) + instruction.substr(space);
  }
  return instruction;
}

/// The phase of the run in which the device total is highest.
std::string_view binding_phase(const MemoryReport& memory) {
  for (const PhasePeaks& phase : memory.phases) {
    if (phase.peaks.device != memory.peaks.device) continue;
    if (phase.phase == "initialization") return phase.phase;
    if (phase.phase == "first_step") return "first step";
    if (phase.phase == "steady_step") return "steady state";
  }
  return "";
}

/// "-165 ms", "+4.00 MiB".
template <class T>
std::string with_sign(T value, std::string (*format)(T)) {
  return fmt::format("{}{}", value < T{} ? "-" : "+", format(value < T{} ? -value : value));
}

/// What comes of a suggestion. A price of the same plan is a limit for the option, whose search has that plan, too.
std::string effect_of(const StepReport& report, const Remedy& remedy) {
  const std::string peak = format_bytes(report.memory.peaks.device + remedy.delta_bytes);
  const std::string_view limit = remedy.is_searched ? "" : " or less";
  if (remedy.verdict != Verdict::Fits) return fmt::format("needs {}{}, still too large", peak, limit);
  std::string text = report.verdict == Verdict::Fits ? "" : "fits, ";
  text += fmt::format("{} a step", format_time(report.time.step + remedy.delta_time));
  if (remedy.samples > 0) text += fmt::format(" of {}", counted(remedy.samples, "sample"));
  text += limit;
  if (remedy.delta_time != Seconds(0)) text += fmt::format(" ({})", with_sign(remedy.delta_time, format_time));
  if (remedy.is_searched) text += fmt::format(", {}", peak);
  return text;
}

/// Of a plan that fits, what makes it faster; else what makes it fit, or at least a good deal smaller.
bool is_worth_a_line(const StepReport& report, const Remedy& remedy) {
  if (remedy.verdict == Verdict::Fits) return report.verdict != Verdict::Fits || remedy.delta_time < Seconds(0);
  return report.verdict != Verdict::Fits && ratio(-remedy.delta_bytes, report.memory.peaks.device) > kGoodDeal;
}

/// The tensors that hold most at the peak, with what the rest holds.
void add_largest(Document& document, const MemoryReport& memory) {
  Table table{.name = "holds", .columns = {{"bytes", "bytes", true}, {"category", "category"}, {"tensors", "name"}}};
  Bytes rest;
  for (const LiveTensor& tensor : memory.live_at_peak) {
    if (table.rows.size() < kMostTensors) {
      table.rows.push_back({cell(tensor.bytes), std::string(name_of(tensor.category)), tensor.name});
    } else {
      rest += tensor.bytes;
    }
  }
  if (rest > Bytes(0)) table.rows.push_back({cell(rest), "", "smaller ones"});
  if (!table.rows.empty()) document.push_back(std::move(table));
}

}  // namespace

std::string moment_of(const MemoryReport& memory, bool with_op) {
  const PeakMoment& peak = memory.peak;
  std::string text = peak.instruction.empty() ? peak.phase : in_words(peak.instruction);
  if (with_op && !peak.op.empty()) text += fmt::format(" ({})", peak.op);
  const std::string_view phase = binding_phase(memory);
  if (!phase.empty() && phase != text) text += fmt::format(" in the {}", phase);
  return text;
}

std::string peak_of(const MemoryReport& memory, bool with_op, int columns, std::size_t most_lines) {
  std::vector<std::pair<std::string, Bytes>> terms;
  Bytes live;
  for (std::size_t i = 0; i < memory.at_peak.size(); ++i) {
    terms.emplace_back(name_of(static_cast<MemoryCategory>(i)), memory.at_peak[i]);
    live += memory.at_peak[i];
  }
  terms.emplace_back("allocator overhead", memory.peaks.reserved - live);
  terms.emplace_back("outside PyTorch", memory.peaks.device - memory.peaks.reserved);
  std::erase_if(terms, [](const auto& term) { return term.second <= Bytes(0); });
  std::stable_sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  const std::string moment = moment_of(memory, with_op);
  const auto text_of = [&](std::size_t most) {
    std::string text = moment;
    Bytes rest;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      if (i < most) {
        text += fmt::format("{}{} {}", i == 0 ? ": " : ", ", terms[i].first, format_bytes(terms[i].second));
      } else {
        rest += terms[i].second;
      }
    }
    return rest > Bytes(0) ? fmt::format("{}, other {}", text, format_bytes(rest)) : text;
  };
  std::size_t most = terms.size();
  while (most > 1 && wrap(text_of(most), columns).size() > most_lines) --most;
  return text_of(most);
}

std::vector<std::string> suggestion_lines(const StepReport& report, const std::vector<Remedy>& remedies,
                                          std::size_t most, int columns) {
  std::vector<const Remedy*> told;
  int width = 0;
  for (const Remedy& remedy : remedies) {
    const int needed = display_width(flags_of(remedy.change));
    if (told.size() == most || needed > std::min(kWidestOption, columns / 2 + 4) || !is_worth_a_line(report, remedy)) {
      continue;
    }
    told.push_back(&remedy);
    width = std::max(width, needed);
  }
  std::vector<std::string> lines;
  for (const Remedy* remedy : told) {
    lines.push_back(fmt::format("{:{}}  {}", flags_of(remedy->change), width, effect_of(report, *remedy)));
  }
  if (!lines.empty() || most < 2) return lines;
  // One that takes two lines is better than none.
  const auto wide = std::find_if(remedies.begin(), remedies.end(), [&](const Remedy& remedy) {
    return remedy.change.frozen.empty() && display_width(flags_of(remedy.change)) <= columns &&
           is_worth_a_line(report, remedy);
  });
  if (wide != remedies.end()) lines = {flags_of(wide->change), "  " + effect_of(report, *wide)};
  return lines;
}

Document brief_of(const StepReport& report, const Explanation& explanation, const std::vector<std::string>& found,
                  const AnswerContext& context, int width) {
  // What a plan without shards is not is said with each of them, and what of a config.json was not heard.
  std::vector<std::string> notes = found;
  for (const std::string& each : report.assumptions) {
    if (each.starts_with("NO_SHARD is") || each.starts_with(kHfNote)) notes.push_back(each);
  }
  if (!explanation.upgrade.empty()) notes.push_back(explanation.upgrade);
  const int columns = width - kIndent;
  const auto lines_of = [&](const std::string& text) { return text.empty() ? 0 : wrap(text, columns).size(); };
  const Entry verdict = verdict_of(report, context.no_plan_fits);
  const std::string plan = sentence_of(report.plan, context.facts, context.batch_origin);
  std::string see = fmt::format("{}", fmt::join(context.commands, " · "));
  std::string assumed = report.assumptions.empty() ? "" : report.assumptions.front();
  std::vector<std::string> suggestions = suggestion_lines(report, explanation.remedies, kMostSuggestions, columns);

  // What the fixed parts leave goes to suggestions, then to an assumption. That no GPU was named is always said.
  std::size_t used = wrap(verdict.label + "  " + verdict.lines[0], width).size() + lines_of(plan) + kPeakLines +
                     lines_of(context.train) + lines_of(see);
  for (const std::string& note : notes) used += lines_of(note);
  if (report.memory.host) ++used;
  // What to train with is more than what to read next.
  if (!context.train.empty() && used + std::min<std::size_t>(suggestions.size(), 1) >= kMostLines) {
    used -= lines_of(see);
    see.clear();
  }
  const std::size_t wanted = std::min(suggestions.size(), kFewestSuggestions);
  const bool is_stand_in = assumed.starts_with("No GPU named");
  const bool has_room = used + wanted + lines_of(assumed) <= kMostLines;
  if (!is_stand_in && !has_room && !context.explains) assumed.clear();
  used += lines_of(assumed);
  const std::size_t room = used < kMostLines ? kMostLines - used : 1;
  // Anew, because the widest option of those that are told sets a column.
  if (suggestions.size() > room) suggestions = suggestion_lines(report, explanation.remedies, room, columns);
  const bool has_line_left = used + suggestions.size() < kMostLines || context.explains;

  Document document = {verdict, summary_of(report)};
  document.push_back(Entry{.label = "plan", .lines = {plan}});
  if (context.explains_units && explanation.wrap) add_policy(document, *explanation.wrap);
  const std::size_t for_peak = kPeakLines + (has_line_left ? 1 : 0);
  document.push_back(Entry{.label = "peak", .lines = {peak_of(report.memory, context.explains, columns, for_peak)}});
  add_host(document, report, {});
  if (context.explains) {
    add_largest(document, report.memory);
    add_explanation(document, explanation, false);
  } else if (!suggestions.empty()) {
    document.push_back(Entry{.label = "try", .lines = std::move(suggestions)});
  }
  if (!notes.empty()) document.push_back(Entry{.label = "note", .lines = notes});
  if (!assumed.empty()) document.push_back(Entry{.label = "assume", .lines = {assumed}});
  if (!context.train.empty()) document.push_back(Entry{.label = "use", .lines = {context.train}});
  if (!see.empty()) document.push_back(Entry{.label = "see", .lines = {see}});
  return document;
}

}  // namespace fsdp::planner

#include "render/render_brief.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/parse_units.h"
#include "core/cluster/bf16_units.h"
#include "core/formats/hf_config.h"
#include "core/report/device_verdict.h"
#include "planner/advice/remedy_kind.h"
#include "render/choice_words.h"
#include "render/render_policy.h"
#include "render/render_report.h"
#include "render/render_search.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

constexpr int kIndent = 8;  // Indent of the texts beside the labels.
constexpr std::size_t kMostLines = 14;
constexpr std::size_t kPeakLines = 2;
constexpr std::size_t kMostSuggestions = 3;
constexpr std::size_t kMostTensors = 6;
/// Only the verbose answer prints longer options.
constexpr int kWidestOption = 40;
/// The share of the peak that a suggestion must save if it does not make the plan fit.
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

/// The phase of the run with the highest device total.
std::string_view binding_phase(const MemoryReport& memory) {
  for (const PhasePeaks& phase : memory.phases) {
    if (phase.peaks.device != memory.peaks.device) continue;
    if (phase.phase == RunPhase::Initialization) return "initialization";
    if (phase.phase == RunPhase::FirstStep) return "first step";
    if (phase.phase == RunPhase::SteadyStep) return "steady state";
  }
  return "";
}

/// "-165 ms", "+4.00 MiB".
template <class T>
std::string with_sign(T value, std::string (*format)(T)) {
  return fmt::format("{}{}", value < T{} ? "-" : "+", format(value < T{} ? -value : value));
}

/// The effect of a suggestion. The price of the same plan bounds that of the option, because the option's search
/// includes that plan.
std::string effect_of(const StepReport& report, const planner::Remedy& remedy) {
  const std::string peak = format_bytes(report.memory.peaks.device + remedy.delta_bytes);
  const std::string_view limit = remedy.is_searched ? "" : " or less";
  const bool begins_to_run = report.verdict != Verdict::Fits && remedy.verdict == Verdict::Fits;
  if (!remedy.has_room() && !begins_to_run) {
    return fmt::format("needs {}{}, still {}", peak, limit, remedy.is_tight ? "tight" : "too large");
  }
  std::string text = has_room(report)   ? ""
                     : is_tight(report) ? "has room, "
                     : remedy.is_tight  ? "fits, tight, "
                                        : "fits, ";
  text += fmt::format("{} a step", format_time(report.time.step + remedy.delta_time));
  if (remedy.samples > 0) text += fmt::format(" of {}", text::counted(remedy.samples, "sample"));
  text += limit;
  if (remedy.delta_time != Seconds(0)) text += fmt::format(" ({})", with_sign(remedy.delta_time, format_time));
  if (remedy.is_searched) text += fmt::format(", {}", peak);
  const bool says_samples = remedy.samples > 0;
  if (planner::kind_of(remedy) == planner::RemedyKind::ChangesTraining && !says_samples) text += "; changes training";
  return text;
}

/// For a plan that fits: it becomes faster. Otherwise: it fits, or becomes at least a good deal smaller.
bool is_worth_a_line(const StepReport& report, const planner::Remedy& remedy) {
  if (remedy.has_room()) {
    return !has_room(report) || remedy.delta_time <= -planner::kLeastSavedTime * report.time.step;
  }
  const bool begins_to_run = report.verdict != Verdict::Fits && remedy.verdict == Verdict::Fits;
  return begins_to_run || (!has_room(report) && ratio(-remedy.delta_bytes, report.memory.peaks.device) > kGoodDeal);
}

/// The first ones that are worth a line. The last line is for one that is not free, if there is one.
std::vector<const planner::Remedy*> shown_of(const StepReport& report, const std::vector<planner::Remedy>& remedies,
                                             std::size_t most, int columns) {
  std::vector<const planner::Remedy*> worth;
  for (const planner::Remedy& remedy : remedies) {
    const bool is_short = text::display_width(flags_of(remedy.change)) <= std::min(kWidestOption, columns / 2 + 4);
    if (is_short && is_worth_a_line(report, remedy)) worth.push_back(&remedy);
  }
  if (worth.size() <= most || most == 0) {
    worth.resize(std::min(worth.size(), most));
    return worth;
  }
  const auto last = worth.begin() + static_cast<std::ptrdiff_t>(most) - 1;
  const auto other = std::find_if(last, worth.end(), [](const planner::Remedy* remedy) {
    return planner::kind_of(*remedy) != planner::RemedyKind::Free;
  });
  // By itself, it has to save much more than the free ones.
  const bool is_much_more =
      other != worth.end() && (*other)->delta_time < std::min(2 * (*last)->delta_time, -0.1 * report.time.step);
  if (other != worth.end() && (most > 1 || is_much_more)) std::rotate(last, other, other + 1);
  worth.resize(most);
  return worth;
}

/// Whether an assumption comes before all others, because without it a reader would misunderstand the answer.
bool is_note(const std::string& assumption) {
  return assumption.starts_with("NO_SHARD is") || assumption.starts_with(kHfNote) ||
         assumption.find(kNoBf16Units) != std::string::npos;
}

/// The largest tensors at the peak, with the sum of the rest.
void add_largest(text::Document& document, const MemoryReport& memory) {
  text::Table table{.name = "holds",
                    .columns = {{"bytes", "bytes", true}, {"category", "category"}, {"tensors", "name"}}};
  Bytes rest;
  for (const LiveTensor& tensor : memory.live_at_peak) {
    if (table.rows.size() < kMostTensors) {
      table.rows.push_back({text::cell(tensor.bytes), std::string(name_of(tensor.category)), tensor.name});
    } else {
      rest += tensor.bytes;
    }
  }
  if (rest > Bytes(0)) table.rows.push_back({text::cell(rest), "", "smaller ones"});
  if (!table.rows.empty()) document.push_back(std::move(table));
}

}  // namespace

std::string moment_of(const MemoryReport& memory, bool with_op) {
  const PeakMoment& peak = memory.peak;
  std::string text = peak.instruction.empty() ? std::string(name_of(peak.phase)) : in_words(peak.instruction);
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
  Bytes others;
  for (const DeviceTerm& term : memory.device_terms) others += term.name == kOtherPrograms ? term.bytes : Bytes(0);
  terms.emplace_back(kOtherPrograms, others);
  terms.emplace_back("outside PyTorch", memory.peaks.device - memory.peaks.reserved - others);
  std::erase_if(terms, [](const auto& term) { return term.second <= Bytes(0); });
  std::stable_sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  const std::string moment = moment_of(memory, with_op);
  const auto after = [&](std::size_t most) {
    Bytes rest;
    for (std::size_t i = most; i < terms.size(); ++i) rest += terms[i].second;
    return rest;
  };
  const auto text_of = [&](std::size_t most) {
    std::string text = moment;
    for (std::size_t i = 0; i < most; ++i) {
      text += fmt::format("{}{} {}", i == 0 ? ": " : ", ", terms[i].first, format_bytes(terms[i].second));
    }
    const Bytes rest = after(most);
    return rest > Bytes(0) ? fmt::format("{}, other {}", text, format_bytes(rest)) : text;
  };
  std::size_t most = terms.size();
  while (most > 1 && text::wrap(text_of(most), columns).size() > most_lines) --most;
  // Adds a line if the sum of the unnamed ones would exceed a named one.
  while (most > 0 && most < terms.size() && after(most) > terms[most - 1].second) ++most;
  return text_of(most);
}

std::vector<std::string> suggestion_lines(const StepReport& report, const std::vector<planner::Remedy>& remedies,
                                          std::size_t most, int columns) {
  const std::vector<const planner::Remedy*> shown = shown_of(report, remedies, most, columns);
  int width = 0;
  for (const planner::Remedy* remedy : shown) width = std::max(width, text::display_width(flags_of(remedy->change)));
  std::vector<std::string> lines;
  for (const planner::Remedy* remedy : shown) {
    lines.push_back(fmt::format("{:{}}  {}", flags_of(remedy->change), width, effect_of(report, *remedy)));
  }
  if (!lines.empty() || most < 2) return lines;
  // A suggestion on two lines is better than none.
  const auto wide = std::find_if(remedies.begin(), remedies.end(), [&](const planner::Remedy& remedy) {
    return remedy.change.frozen.empty() && text::display_width(flags_of(remedy.change)) <= columns &&
           is_worth_a_line(report, remedy);
  });
  if (wide != remedies.end()) lines = {flags_of(wide->change), "  " + effect_of(report, *wide)};
  return lines;
}

namespace {

/// The amount of each optional part in a short answer.
struct Extent {
  std::size_t suggestions = 0;
  bool has_see = false;
  bool has_assumption = false;
  std::size_t peak_lines = kPeakLines;
};

/// The answer for a plan, with that amount.
class Brief {
 public:
  Brief(const StepReport& report, const planner::Explanation& explanation, const AnswerContext& context, int width)
      : report_(report), explanation_(explanation), context_(context), columns_(width - kIndent) {}

  /// Every note on a plan without shards, and on ignored settings of a config.json.
  void add_notes(const std::vector<std::string>& found) {
    notes_ = found;
    for (const std::string& each : report_.assumptions) {
      if (is_note(each)) notes_.push_back(each);
    }
    notes_.insert(notes_.end(), explanation_.notes.begin(), explanation_.notes.end());
  }

  bool is_stand_in() const {
    return !report_.assumptions.empty() && report_.assumptions.front().starts_with("No GPU named");
  }

  text::Document document(const Extent& extent) const {
    text::Document document = {verdict_of(report_, context_.no_plan_fits), summary_of(report_)};
    const auto add = [&](const char* label, std::vector<std::string> lines) {
      std::erase(lines, "");
      if (!lines.empty()) document.push_back(text::Entry{.label = label, .lines = std::move(lines)});
    };
    add_speed(document, report_);
    add("job", {planner::job_of(report_.plan)});
    add("plan", {planner::sentence_of(report_.plan, context_.facts, context_.batch_origin)});
    if (context_.explains_units && explanation_.wrap) add_policy(document, *explanation_.wrap);
    add("peak", {peak_of(report_.memory, context_.explains, columns_, extent.peak_lines)});
    add_host(document, report_, {});
    if (context_.explains) {
      add_largest(document, report_.memory);
      add_explanation(document, explanation_, false);
    } else {
      add("try", suggestion_lines(report_, explanation_.remedies, extent.suggestions, columns_));
    }
    add("note", notes_);
    if (extent.has_assumption && !report_.assumptions.empty()) add("assume", {report_.assumptions.front()});
    add("use", {context_.train});
    if (extent.has_see) add("see", {fmt::format("{}", fmt::join(context_.commands, " · "))});
    return document;
  }

 private:
  const StepReport& report_;
  const planner::Explanation& explanation_;
  const AnswerContext& context_;
  std::vector<std::string> notes_;
  int columns_;
};

std::size_t lines_of(const text::Document& document, int width) {
  const std::string text = to_text(document, text::Terminal{.width = width});
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

std::size_t sections_of_verdict(const text::Document& brief) {
  const auto plan = std::find_if(brief.begin(), brief.end(), [](const text::Section& section) {
    const text::Entry* entry = std::get_if<text::Entry>(&section);
    return entry != nullptr && entry->label == "plan";
  });
  return plan == brief.end() ? 0 : static_cast<std::size_t>(plan - brief.begin()) + 1;
}

text::Document brief_of(const StepReport& report, const planner::Explanation& explanation,
                        const std::vector<std::string>& found, const AnswerContext& context, int width) {
  Brief brief(report, explanation, context, width);
  brief.add_notes(found);
  // One suggestion, and the note that no GPU was named, are always printed.
  Extent extent{.suggestions = 1, .has_assumption = brief.is_stand_in()};
  if (context.explains) return brief.document({.has_see = true, .has_assumption = true, .peak_lines = kPeakLines + 1});
  const auto take = [&](const Extent& more) {
    if (lines_of(brief.document(more), width) <= kMostLines) extent = more;
  };
  // These share the remaining room, in this order.
  const auto with = [&](auto change) {
    Extent more = extent;
    change(more);
    take(more);
  };
  // If the verdict is printed before the suggestions are known, the width of labels must not depend on them: lines are
  // reserved for possible ones.
  if (context.may_suggest) {
    const Extent others{.has_see = true, .has_assumption = true};
    extent.has_assumption |= lines_of(brief.document(others), width) + kMostSuggestions <= kMostLines;
  }
  with([](Extent& more) { more.suggestions = kMostSuggestions - 1; });
  with([](Extent& more) { more.has_see = true; });
  if (!context.may_suggest) with([](Extent& more) { more.has_assumption = true; });
  with([](Extent& more) { more.suggestions = kMostSuggestions; });
  with([](Extent& more) { ++more.peak_lines; });
  return brief.document(extent);
}

}  // namespace fsdp::render

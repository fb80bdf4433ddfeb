#include "render/render_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "planner/request/packing_choice.h"
#include "render/choice_words.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

/// Why no larger size was tried: the capture or the model's positions end there.
enum class End : std::uint8_t { Captured, Positions };

text::Cell cell_of(const planner::LargestSize& size, End end) {
  const std::string exact = std::to_string(size.size);
  if (size.is_open) return {size.size == 0 ? "?" : text::grouped(size.size) + " or more", exact};
  if (size.size == 0) return {"-", exact};
  if (!size.is_last) return {text::grouped(size.size), exact};
  return {end == End::Positions ? "all " + text::grouped(size.size) : text::grouped(size.size) + " or more", exact};
}

bool has_sequences(const planner::FitTable& table) {
  return std::any_of(table.rows.begin(), table.rows.end(),
                     [](const planner::FitRow& row) { return !row.sequence.empty(); });
}

void add_columns(text::Table& result, const planner::FitTable& table, std::string_view title, std::string_view name) {
  for (const planner::FitMode& mode : table.modes) {
    const bool is_plain = mode.checkpoint.way.mode == CheckpointMode::None;
    std::string script_name = fmt::format("{}_checkpointing_{}", name, mode.name);
    std::replace(script_name.begin(), script_name.end(), ':', '_');
    result.columns.push_back({is_plain ? std::string(title) : "checkpointed", std::move(script_name), true});
  }
}

std::string how_of(const planner::FitMode& mode) {
  if (mode.checkpoint.way.mode == CheckpointMode::None) return "without checkpointing";
  const bool is_whole = !mode.checkpoint.blocks && mode.checkpoint.way.mode == CheckpointMode::Full;
  return is_whole ? "with full checkpointing" : fmt::format("with checkpointing {}", mode.name);
}

/// " (14 would run tight, emptying its cache 2 times a step)"
std::string tight_text(const planner::LargestSize& size) {
  if (size.tight == 0) return "";
  const std::string flushes =
      size.flushes > 0 ? fmt::format(", emptying its cache {} a step", text::counted(size.flushes, "time")) : "";
  return fmt::format(" ({} would run tight{})", text::grouped(size.tight), flushes);
}

/// "2 without checkpointing, 9 with full checkpointing"
std::string sizes_text(const planner::FitTable& table, const std::vector<planner::LargestSize>& sizes, End end) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool is_none = sizes[i].size == 0;
    const std::string size = is_none ? (sizes[i].is_open ? "none found" : "none") : cell_of(sizes[i], end).text;
    texts.push_back(fmt::format("{} {}{}", size, how_of(table.modes[i]), tight_text(sizes[i])));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// " of 4,096 tokens"
std::string of_tokens(const planner::FitTable& table) {
  return table.sequence ? fmt::format(" of {} tokens", text::grouped(*table.sequence)) : "";
}

/// "4x L4", and the settings that make it fit.
std::string machine_text(const planner::FitRow& row) {
  return row.is_offloaded ? row.machine + ", with CPU offload" : row.machine;
}

bool any_row(const planner::FitTable& table, bool (*is_so)(const planner::FitRow&)) {
  return std::any_of(table.rows.begin(), table.rows.end(), is_so);
}

bool is_row_open(const planner::FitRow& row) {
  return row.any_size([](const planner::LargestSize& size) { return size.is_open; });
}

/// The verdict of one machine, or of all.
text::Entry verdict_of(const planner::FitTable& table) {
  const auto num_training = std::count_if(table.rows.begin(), table.rows.end(), std::mem_fn(&planner::FitRow::trains));
  const text::Style style = num_training > 0 ? text::Style::Good : text::Style::Bad;
  const std::string label = num_training > 0 ? "FITS" : "DOES NOT FIT";
  if (table.rows.size() > 1) {
    std::string smallest;
    const auto first = std::find_if(table.rows.begin(), table.rows.end(), std::mem_fn(&planner::FitRow::trains));
    if (first != table.rows.end()) smallest = fmt::format("; the smallest is {}", machine_text(*first));
    return {label,
            {fmt::format("{} can be trained on {} of {} machines{}.", table.model, num_training, table.rows.size(),
                         smallest)},
            style};
  }
  const planner::FitRow& row = table.rows.front();
  if (!row.why_not.empty()) return {label, {row.why_not}, style};
  const bool is_tight = !row.trains() && row.runs_tight();
  std::vector<std::string> lines = {fmt::format("{} on {}", table.model, machine_text(row)),
                                    fmt::format("samples{} in a micro-batch: {}", of_tokens(table),
                                                sizes_text(table, row.micro_batch, End::Captured))};
  if (!row.sequence.empty()) {
    lines.push_back(fmt::format("tokens in a sample, {} in a micro-batch: {}", table.micro_batch,
                                sizes_text(table, row.sequence, End::Positions)));
  }
  return {is_tight ? "FITS, TIGHT" : label, std::move(lines), is_tight ? text::Style::Warning : style};
}

text::Entry meaning_of(const planner::FitTable& table) {
  std::vector<std::string> lines = {fmt::format("batch: samples{} in a micro-batch, on each GPU.", of_tokens(table))};
  if (has_sequences(table)) {
    lines.push_back(fmt::format(
        "tokens: of a sample, with {} on each GPU, in steps of {}; \"all\" are as many as the model has positions.",
        text::counted(table.micro_batch, "sample"), planner::kSequenceStep));
  }
  const bool some_open = any_row(table, is_row_open);
  lines.push_back(fmt::format(
      "Each is the largest for which some FSDP2 plan fits, with expandable segments if none does without; that the "
      "next larger one does not is proven{}.",
      some_open ? ", but for \"or more\" and \"?\", where the question came to the limit of its work (--effort)" : ""));
  if (any_row(table, [](const planner::FitRow& row) { return row.runs_tight(); })) {
    lines.emplace_back("\"would run tight\": some plan runs, without room to spare, as far as we searched.");
  }
  if (table.rows.size() > 1 && any_row(table, [](const planner::FitRow& row) { return row.is_offloaded; })) {
    lines.emplace_back("Parameters stay on the GPUs; if nothing fits so, the row has CPU offload.");
  }
  if (!table.only_captured.empty()) {
    lines.push_back(
        fmt::format("Only captured micro-batches can be planned: {}.", fmt::join(table.only_captured, ", ")));
  }
  return {.label = "figures", .lines = std::move(lines)};
}

/// The command for the plan of the smallest machine's figure, or advice if there is none.
text::Entry next_of(const planner::FitTable& table, const std::string& model) {
  const auto row = std::find_if(table.rows.begin(), table.rows.end(), std::mem_fn(&planner::FitRow::trains));
  if (row != table.rows.end()) {
    planner::PlanChoices choices = row->choices;
    const auto fits = [](const planner::LargestSize& size) { return size.size > 0; };
    const auto batch = std::find_if(row->micro_batch.begin(), row->micro_batch.end(), fits);
    const auto tokens = std::find_if(row->sequence.begin(), row->sequence.end(), fits);
    const bool is_batch = batch != row->micro_batch.end();
    const auto mode = is_batch ? batch - row->micro_batch.begin() : tokens - row->sequence.begin();
    if (!planner::is_packed_to_one_row(choices)) choices.batch = is_batch ? batch->size : table.micro_batch;
    if (!is_batch) (choices.packing ? choices.packing : choices.sequence) = tokens->size;
    choices.checkpoint = table.modes[static_cast<std::size_t>(mode)].checkpoint;
    return {.label = "plan", .lines = {fmt::format("fsdp-plan {} {}", model, flags_of(choices))}};
  }
  const std::string offload = table.tries_offload ? "" : "--offload yes, which keeps parameters in CPU memory; ";
  return {.label = "try", .lines = {offload + "more --gpus, which share the model; a smaller --seq"}};
}

}  // namespace

text::Table table_of(const planner::FitTable& table) {
  text::Table result{.name = "fit", .columns = {{"machine", "machine"}, {"memory", "memory_bytes", true}}};
  add_columns(result, table, "batch", "micro_batch");
  if (has_sequences(table)) add_columns(result, table, "tokens", "sequence");
  for (const planner::FitRow& row : table.rows) {
    std::vector<text::Cell> cells = {machine_text(row), text::cell(row.memory)};
    for (const planner::LargestSize& size : row.micro_batch) cells.push_back(cell_of(size, End::Captured));
    cells.resize(2 + table.modes.size());
    for (const planner::LargestSize& size : row.sequence) cells.push_back(cell_of(size, End::Positions));
    cells.resize(result.columns.size());
    if (!row.why_not.empty()) cells.back() = {row.why_not, row.why_not, text::Style::Warning};
    result.rows.push_back(std::move(cells));
  }
  return result;
}

text::Document document_of(const planner::FitTable& table, const std::string& model, bool only_verdict) {
  text::Document document = {verdict_of(table)};
  if (only_verdict) return document;
  document.emplace_back(table_of(table));
  document.emplace_back(meaning_of(table));
  document.emplace_back(next_of(table, model));
  return document;
}

}  // namespace fsdp::render

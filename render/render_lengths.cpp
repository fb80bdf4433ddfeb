#include "render/render_lengths.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/parse_units.h"
#include "render/render_search.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

double per_100(std::int64_t flushes, std::int64_t steps) {
  return 100 * static_cast<double>(flushes) / static_cast<double>(steps);
}

/// "2,000 steps on each of 4 GPUs drawn"
std::string runs_text(const planner::LengthAnswer& answer) {
  return fmt::format(
      "{} on {}", text::counted(answer.steps, "step"),
      answer.drawn_gpus == 1 ? "the GPU drawn" : fmt::format("each of {} GPUs drawn", answer.drawn_gpus));
}

std::string reserved_text(const planner::LengthAnswer& answer) {
  return fmt::format("{} reserved at most, {} of {} with the rest of the device",
                     format_bytes(answer.planned.peak_reserved),
                     format_bytes(answer.planned.peak_reserved + answer.outside), format_bytes(answer.budget));
}

std::string refusal_text(const planner::LengthAnswer& answer) {
  const planner::LengthRow& planned = answer.planned;
  if (planned.num_out == 0) {
    return fmt::format("a batch of the longest sample, {} tokens, runs out of memory; none is in {}",
                       text::grouped(answer.longest), runs_text(answer));
  }
  const std::string first =
      fmt::format("{} of {} drawn within {}, the first in step {}", text::counted(planned.num_out, "GPU"),
                  answer.drawn_gpus, text::counted(answer.steps, "step"), text::grouped(planned.first_out));
  if (answer.gpus == 1) return fmt::format("runs out of memory: {}", first);
  return fmt::format("runs out of memory: {}; one of {} does with probability {}", first,
                     text::counted(answer.gpus, "GPU"), text::percent(answer.probability()));
}

std::string tight_text(const planner::LengthAnswer& answer) {
  const planner::LengthRow& planned = answer.planned;
  if (planned.flushes > 0) {
    return fmt::format(
        "all {}, but the allocator empties its cache {} in a hundred steps, each time waiting for the GPU",
        runs_text(answer), fmt::format("{:.1f} times", per_100(planned.flushes, answer.steps)));
  }
  const Bytes left = answer.budget - planned.peak_reserved - answer.outside;
  return fmt::format("all {}; {}, {} left of a {} safety margin", runs_text(answer), reserved_text(answer),
                     format_bytes(left), format_bytes(answer.margin));
}

std::string spread_text(const planner::LengthSpread& spread) {
  return fmt::format("{} least, {} median, {} p95, {} most", text::grouped(spread.least), text::grouped(spread.median),
                     text::grouped(spread.p95), text::grouped(spread.most));
}

std::string bytes_text(const planner::LengthSpread& spread) {
  return fmt::format("{} least, {} median, {} p95, {} most", format_bytes(Bytes(spread.least)),
                     format_bytes(Bytes(spread.median)), format_bytes(Bytes(spread.p95)),
                     format_bytes(Bytes(spread.most)));
}

/// What lengths that differ add to a run of the longest alone.
std::string added_text(const planner::LengthAnswer& answer) {
  const Bytes most = answer.planned.peak_reserved;
  const std::string at =
      fmt::format("{} if every batch had {} tokens", format_bytes(answer.at_longest), text::grouped(answer.longest));
  if (answer.planned.num_out > 0 || answer.planned.flushes > 0 || most <= answer.at_longest) return at;
  const double share = ratio(most - answer.at_longest, answer.at_longest);
  return fmt::format("{}; lengths that differ add {} ({:.1f} %)", at, format_bytes(most - answer.at_longest),
                     100 * share);
}

text::Entry figures_of(const planner::LengthAnswer& answer) {
  const std::string cut =
      answer.num_cut > 0 ? fmt::format("; {} cut to {}", text::grouped(answer.num_cut), text::grouped(answer.limit))
                         : "";
  const std::string rows = text::counted(answer.batch, "row");
  std::vector<std::string> lines = {
      fmt::format("samples: {}, tokens {}{}", text::grouped(answer.samples), spread_text(answer.sample_tokens), cut),
      fmt::format("batches of {}, padded to the longest: tokens {}; {} of them padding", rows,
                  spread_text(answer.batch_tokens), text::percent(answer.planned.padding)),
      fmt::format("reserved in a step: {}", bytes_text(answer.reserved)),
      fmt::format("allocated in a step: {}", bytes_text(answer.allocated)),
      fmt::format("reserved: {}", added_text(answer))};
  if (answer.has_mask) {
    lines.emplace_back(
        "with a mask of padding, as transformers makes it for attention sdpa; flash_attention_2 needs none "
        "(--padding-mask no)");
  } else if (answer.batch > 1) {
    lines.emplace_back("without a mask of padding, which attention sdpa of transformers needs (--padding-mask yes)");
  }
  return {.label = "lengths", .lines = std::move(lines)};
}

std::vector<text::Cell> cells_of(const planner::LengthRow& row, std::int64_t steps) {
  const double flushes = per_100(row.flushes, steps);
  const std::string shown = row.flushes == 0 ? "-" : fmt::format("{:.1f}", flushes);
  const bool is_tight = row.device.tightness != Tightness::None;
  text::Cell verdict = verdict_cell(row.device.verdict, is_tight);
  if (row.num_out > 0) verdict.text = fmt::format("out in step {}", text::grouped(row.first_out));
  return {row.what,
          text::cell(row.peak_reserved),
          {shown, fmt::format("{}", flushes)},
          {text::percent(row.padding), fmt::format("{}", row.padding)},
          std::move(verdict),
          row.how};
}

text::Table table_of(const planner::LengthAnswer& answer) {
  text::Table table{.name = "changes",
                    .columns = {{"on one GPU", "what"},
                                {"reserved", "reserved_peak_bytes", true},
                                {"emptied/100", "flushes_per_100_steps", true},
                                {"padding", "padding", true},
                                {"", "verdict"},
                                {"setting", "how"}}};
  for (const planner::LengthRow& row : answer.rows) table.rows.push_back(cells_of(row, answer.steps));
  return table;
}

}  // namespace

text::Entry verdict_of(const planner::LengthAnswer& answer) {
  const DeviceVerdict device = answer.verdict();
  if (device.verdict == Verdict::DoesNotFit) {
    return {.label = "DOES NOT FIT", .lines = {refusal_text(answer)}, .style = text::Style::Bad};
  }
  if (device.tightness != Tightness::None) {
    return {.label = "FITS, TIGHT", .lines = {tight_text(answer)}, .style = text::Style::Warning};
  }
  return {.label = "FITS",
          .lines = {fmt::format("all {}; {} and a {} safety margin", runs_text(answer), reserved_text(answer),
                                format_bytes(answer.margin))},
          .style = text::Style::Good};
}

text::Document with_lengths(text::Document document, const planner::LengthAnswer& answer) {
  if (!document.empty()) {
    if (auto* const verdict = std::get_if<text::Entry>(&document.front())) {
      verdict->lines.insert(verdict->lines.begin(),
                            fmt::format("every batch of {} tokens: {}", text::grouped(answer.longest), verdict->label));
      verdict->label = "longest";
      verdict->style = text::Style::Strong;
    }
  }
  document.insert(document.begin(), verdict_of(answer));
  document.emplace_back(figures_of(answer));
  if (!answer.rows.empty()) document.emplace_back(table_of(answer));
  return document;
}

}  // namespace fsdp::render

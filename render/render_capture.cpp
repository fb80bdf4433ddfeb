#include "render/render_capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/base/parse_units.h"
#include "render/python_words.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

std::string difference_of(const ComparedTerm& term) {
  if (term.difference() == 0) return "";
  const double relative = term.relative();
  return std::isfinite(relative) ? fmt::format("{:+.3f} %", 100 * relative) : "not seen";
}

text::Table terms_of(const runs::PlanCheck& check) {
  text::Table table{.name = "check",
                    .columns = {{"term", "term"},
                                {"predicted", "predicted", true},
                                {"rehearsed", "rehearsed", true},
                                {"difference", "difference", true}},
                    .rows = {}};
  for (const ComparedTerm& term : check.terms) {
    const auto figure = [&](std::int64_t value) {
      return term.unit == TermUnit::Bytes ? format_bytes(Bytes(value)) : fmt::format("{}", value);
    };
    table.rows.push_back({term.name, figure(term.predicted), figure(term.measured), difference_of(term)});
  }
  return table;
}

std::string points_of(const ModelSpec& spec) {
  std::string text;
  for (const Model& point : spec.captured->points) {
    text += (text.empty() ? "" : "; ") + sizes_of(point.dimensions);
  }
  return text;
}

text::Entry verdict_of(const runs::PlanCheck& check, const std::string& target) {
  if (check.holds()) return {.label = "CAPTURED", .lines = {target}, .style = text::Style::Good};
  const auto collectives = std::find_if(check.beyond.begin(), check.beyond.end(), [](const ComparedTerm& term) {
    return term.name.ends_with(" count") || term.name.ends_with(" payload");
  });
  std::string why = "under a plan of it the script fails";
  if (!check.has_failed) {
    why = collectives != check.beyond.end()
              ? "a plan of it predicts other collectives than the script makes"
              : fmt::format("its prediction differs from the script itself by more than {} %",
                            100 * runs::kPlanTolerance);
  }
  return {.label = "NOT CAPTURED",
          .lines = {fmt::format("{} was not written: {}; --no-check writes it all the same.", target, why)},
          .style = text::Style::Bad};
}

/// "trained by turns: 4 backwards a step, Critic steps 3 times, Generator once"
std::string turns_of(const Model& model) {
  const std::size_t backwards = model.passes.size();
  std::string text = fmt::format("trained by turns: {} backward{} a step", backwards, backwards == 1 ? "" : "s");
  for (std::size_t o = 0; o < model.optimizers.size(); ++o) {
    std::ptrdiff_t steps = 0;
    for (const Pass& pass : model.passes) {
      steps += std::count(pass.optimizers.begin(), pass.optimizers.end(), static_cast<int>(o));
    }
    std::string names;
    for (const int root : model.optimizers[o]) {
      names += fmt::format("{}{}", names.empty() ? "" : " and ", model.modules[static_cast<std::size_t>(root)].name);
    }
    text += fmt::format(", {} step{} {}", names, model.optimizers[o].size() == 1 ? "s" : "",
                        steps == 1 ? "once" : fmt::format("{} times", steps));
  }
  return text;
}

text::Entry model_of(const ModelSpec& spec) {
  const Model& model = spec.captured->points.front();
  text::Entry entry{.label = "model",
                    .lines = {fmt::format("{}, {} parameters", spec.name, text::grouped(num_parameters(model)))}};
  std::string stacks;
  for (const Stack& stack : model.stacks) {
    std::set<int> blocks;  // A forward may call them several times, for example once in each pass of a step.
    for (const int call : stack.calls) blocks.insert(model.calls[static_cast<std::size_t>(call)].module);
    stacks += fmt::format("{}{} x {} ({})", stacks.empty() ? "" : ", ", blocks.size(), stack.class_name, stack.name);
    if (!has_passes(model) && stack.calls.size() > blocks.size())
      stacks += fmt::format(", {} calls in all", stack.calls.size());
  }
  if (!stacks.empty()) entry.lines.push_back(stacks);
  if (has_passes(model)) entry.lines.push_back(turns_of(model));
  return entry;
}

/// The recorded precisions of any block, with or without checkpointing.
std::string precisions_of(const Model& model) {
  std::vector<std::string> precisions;
  for (const Block& block : model.blocks) {
    for (const RecordedTape& tape : block.recorded->tapes) {
      const std::string words = fmt::format("{}{}", name_of(tape.dtype), tape.checkpointed ? " checkpointed" : "");
      if (std::find(precisions.begin(), precisions.end(), words) == precisions.end()) precisions.push_back(words);
    }
  }
  return fmt::format("{}", fmt::join(precisions, ", "));
}

void add_check(text::Document& document, const runs::PlanCheck& check) {
  if (!check.not_made.empty()) {
    document.push_back(text::Entry{"check",
                                   {fmt::format("It could not be checked against the script: {}", check.not_made)},
                                   text::Style::Warning});
  } else if (!check.terms.empty()) {
    document.push_back(
        text::Entry{"check",
                    {fmt::format("{} GPUs, FULL_SHARD: predicted, next to the script itself sharded by the "
                                 "real FSDP2 and rehearsed",
                                 check.gpus)}});
    document.push_back(terms_of(check));
  }
  if (check.collectives_beside > 0) {
    document.push_back(text::Entry{
        "note",
        {fmt::format(
            "In a step the script makes {} of its own, of {} in all. No plan has them.",
            check.collectives_beside == 1 ? "1 collective" : fmt::format("{} collectives", check.collectives_beside),
            format_bytes(check.bytes_beside))}});
  }
}

}  // namespace

text::Document document_of(const ModelSpec& spec, const runs::PlanCheck& check, const std::string& target,
                           Seconds seconds) {
  const bool is_good = check.holds();
  text::Document result = {verdict_of(check, target), model_of(spec),
                           text::Entry{"recorded", {precisions_of(spec.captured->points.front()), points_of(spec)}},
                           text::Entry{"took", {fmt::format("{:.1f} s", seconds.count())}}};
  add_check(result, check);
  for (const std::string& note : spec.notes) result.push_back(text::Entry{"limit", {note}, text::Style::Warning});
  if (is_good)
    result.push_back(text::Entry{"see", {fmt::format("fsdp-plan {} --gpus 8 --mem 24G -o plan.json", target)}});
  return result;
}

}  // namespace fsdp::render

#include "gui/state/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "command/cli_plan_file.h"
#include "core/base/json_document.h"
#include "core/spec/model_library.h"
#include "core/spec/model_spec.h"

namespace fsdp::gui {

using planner::CommandLine;
using planner::Option;

namespace {

void set_dimension_texts(Inputs& inputs, std::vector<std::string> texts) {
  if (texts.empty()) {
    inputs.options.erase(Option::SetDimension);
  } else {
    inputs.options[Option::SetDimension] = std::move(texts);
  }
}

std::string number_text(double value) {
  return fmt::format("{}", value);
}

Inputs with_size(Inputs inputs, const std::string& name, double value) {
  if (name == "batch") return with_option(std::move(inputs), Option::Batch, number_text(value));
  if (name == "seq") return with_option(std::move(inputs), Option::Sequence, number_text(value));
  return with_dimension(std::move(inputs), name, number_text(value));
}

Result<Inputs> inputs_of_plan(PlanFile file, const std::string& path, const std::string& library) {
  if (!file.cluster) {
    return failure(path, "The plan does not name its machines.",
                   "Make one with \"fsdp-plan MODEL --gpus 4 --mem 16G -o plan.json\".");
  }
  FSDP_TRY(PlannedModel planned, model_of_plan(file.plan, path, library));
  const std::string folder = path.substr(0, path.find_last_of('/') + 1);
  FSDP_TRY(const std::string model_path, find_model_file(file.plan.model_file, library, folder));
  Inputs inputs;
  const std::vector<std::string> shipped = model_names(library);
  const bool is_shipped = std::find(shipped.begin(), shipped.end(), file.plan.model_file) != shipped.end();
  inputs.model = is_shipped ? file.plan.model_file : model_path;
  if (!file.plan.recipe.empty()) inputs = with_option(std::move(inputs), Option::Recipe, file.plan.recipe);
  if (!file.plan.trainable.empty()) inputs.options[Option::Trainable] = file.plan.trainable;
  if (!file.plan.frozen.empty()) inputs.options[Option::Freeze] = file.plan.frozen;
  FSDP_TRY(const std::vector<Dimension> sizes, planner::own_sizes_of(file.plan, planned.spec));
  for (const Dimension& size : sizes) inputs = with_size(std::move(inputs), size.name, size.value);
  Errors errors = check(file.plan, planned.model);
  for (Error& error : errors) error.where = path + (error.where.empty() ? "" : ": " + error.where);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  file.plan.model_file = inputs.model;
  inputs.kept = std::move(file);
  return inputs;
}

}  // namespace

std::optional<std::string> text_of(const Inputs& inputs, Option option) {
  const auto found = inputs.options.find(option);
  if (found == inputs.options.end() || found->second.empty()) return std::nullopt;
  return found->second.back();
}

Inputs with_option(Inputs inputs, Option option, const std::string& text) {
  if (text.empty()) {
    inputs.options.erase(option);
  } else {
    inputs.options[option] = {text};
  }
  // Options that exclude each other: the last one that was touched counts.
  const auto drop = [&](std::initializer_list<Option> others) {
    for (const Option other : others) inputs.options.erase(other);
  };
  if (text.empty()) return inputs;
  if (option == Option::Strategy) drop({Option::Shard, Option::Replicate, Option::Reshard});
  if (option == Option::Shard || option == Option::Reshard) drop({Option::Strategy, Option::Replicate});
  if (option == Option::GpuName) drop({Option::ClusterFile, Option::Memory});
  if (option == Option::ClusterFile) {
    drop({Option::GpuName, Option::Memory, Option::Gpus, Option::Nodes, Option::IntraLinkName, Option::IntraBandwidth,
          Option::NetworkName, Option::NicBandwidth});
  }
  if (option == Option::IntraLinkName) drop({Option::IntraBandwidth});
  if (option == Option::NetworkName) drop({Option::NicBandwidth});
  return inputs;
}

Inputs with_dimension(Inputs inputs, const std::string& name, const std::string& value) {
  const auto found = inputs.options.find(Option::SetDimension);
  std::vector<std::string> texts = found == inputs.options.end() ? std::vector<std::string>{} : found->second;
  std::erase_if(texts, [&](const std::string& text) { return text.starts_with(name + "="); });
  if (!value.empty()) texts.push_back(fmt::format("{}={}", name, value));
  set_dimension_texts(inputs, std::move(texts));
  return inputs;
}

bool is_about_plan(Option option) {
  switch (option) {
    case Option::Strategy:
    case Option::Shard:
    case Option::Replicate:
    case Option::Reshard:
    case Option::Wrap:
    case Option::WrapEnds:
    case Option::Checkpoint:
    case Option::Offload:
    case Option::Prefetch:
    case Option::BackwardPrefetch:
    case Option::GlobalBatch:
      return true;
    default:
      return false;
  }
}

CommandLine line_of(const Inputs& inputs) {
  CommandLine line;
  line.arguments = {inputs.model};
  line.values.resize(planner::options().size());
  for (const auto& [option, texts] : inputs.options) {
    if (inputs.kept && is_about_plan(option)) continue;
    line.values[static_cast<std::size_t>(option)] = texts;
  }
  return line;
}

std::vector<std::string> words_of(const Inputs& inputs) {
  std::vector<std::string> words = {inputs.model};
  const CommandLine line = line_of(inputs);
  std::vector<std::string> many;
  for (const planner::OptionInfo& info : planner::options()) {
    const std::vector<std::string>& texts = line.all(info.option);
    if (texts.empty()) continue;
    const std::string flag(planner::flag_of(info.option));
    if (info.many) {
      // These take all words that follow, so they stand at the end.
      many.push_back(flag);
      many.insert(many.end(), texts.begin(), texts.end());
      continue;
    }
    for (const std::string& text : texts) words.insert(words.end(), {flag, text});
  }
  words.insert(words.end(), many.begin(), many.end());
  return words;
}

std::string shell_quoted(const std::string& word) {
  const std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./%@";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char character : word) {
    if (character == '\'') {
      quoted += "'\\''";
    } else {
      quoted += character;
    }
  }
  return quoted + "'";
}

std::string command_of(const Inputs& inputs, const PlanFile& shown) {
  if (inputs.kept) return "fsdp-plan simulate - <<'PLAN'\n" + to_text(shown) + "PLAN\n";
  std::string command = "fsdp-plan";
  for (const std::string& word : words_of(inputs)) command += " " + shell_quoted(word);
  return command;
}

Inputs with_kept(const Inputs& inputs, PlanFile shown) {
  Inputs kept = inputs;
  // What the search chose of the batch is the kept plan's own from now on.
  if (kept.options.erase(Option::GlobalBatch) > 0) {
    kept.options.erase(Option::Accumulate);
    for (const Dimension& dimension : shown.plan.dimensions) {
      if (dimension.name == "batch") kept = with_size(std::move(kept), dimension.name, dimension.value);
    }
  }
  kept.kept = std::move(shown);
  return kept;
}

Result<Inputs> inputs_of_plan_file(const std::string& path, const std::string& library) {
  FSDP_TRY(PlanFile file, read_plan_file(path));
  return inputs_of_plan(std::move(file), path, library);
}

Result<Inputs> inputs_of_file(const std::string& path, const std::string& library) {
  const std::vector<std::string> shipped = model_names(library);
  if (std::find(shipped.begin(), shipped.end(), path) == shipped.end()) {
    FSDP_TRY(const std::string found, find_model_file(path, library));
    FSDP_TRY(const JsonDocument document, read_json_file(found));
    if (document.root.find("mesh") != nullptr) return inputs_of_plan_file(found, library);
  }
  Inputs inputs;
  inputs.model = path;
  return inputs;
}

}  // namespace fsdp::gui

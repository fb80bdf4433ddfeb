#include "gui/state/inputs.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "core/base/json_document.h"
#include "core/frameworks/check_plan.h"
#include "core/library/model_library.h"
#include "core/spec/model_spec.h"
#include "planner/request/packing_choice.h"
#include "planner/search/objective.h"
#include "render/choice_text.h"
#include "render/choice_words.h"
#include "text/shell_text.h"

namespace fsdp::gui {

using planner::PlanChoice;
using planner::PlanChoices;

namespace {

/// Choices that a choice also decides, or contradicts.
std::vector<PlanChoice> excluded_by(PlanChoice choice) {
  switch (choice) {
    case PlanChoice::Strategy:
      return {PlanChoice::Shard, PlanChoice::Replicate, PlanChoice::Reshard};
    case PlanChoice::Shard:
    case PlanChoice::Reshard:
      return {PlanChoice::Strategy, PlanChoice::Replicate};
    case PlanChoice::GpuName:
      return {PlanChoice::ClusterFile, PlanChoice::Memory};
    case PlanChoice::ClusterFile:
      return {PlanChoice::GpuName,      PlanChoice::Memory,        PlanChoice::Gpus,
              PlanChoice::Nodes,        PlanChoice::IntraLinkName, PlanChoice::IntraBandwidth,
              PlanChoice::BusBandwidth, PlanChoice::NetworkName,   PlanChoice::NicBandwidth};
    case PlanChoice::IntraLinkName:
      return {PlanChoice::IntraBandwidth, PlanChoice::BusBandwidth};
    case PlanChoice::NetworkName:
      return {PlanChoice::NicBandwidth};
    default:
      return {};
  }
}

Inputs without_excluded_by(Inputs inputs, PlanChoice choice) {
  for (const PlanChoice other : excluded_by(choice)) inputs = without(std::move(inputs), other);
  return inputs;
}

bool is_of_dimension(const std::string& text, const std::string& name) {
  return text.starts_with(name + "=");
}

Inputs without_dimension(Inputs inputs, const std::string& name) {
  std::erase_if(inputs.choices.dimensions, [&](const Dimension& each) { return each.name == name; });
  const auto unread = inputs.unread.find(PlanChoice::SetDimension);
  if (unread == inputs.unread.end()) return inputs;
  std::erase_if(unread->second, [&](const std::string& text) { return is_of_dimension(text, name); });
  if (unread->second.empty()) inputs.unread.erase(unread);
  return inputs;
}

/// The decision of a text. An empty text decides nothing.
Result<PlanChoices> read_one(PlanChoice choice, const std::string& text) {
  PlanChoices choices;
  if (text.empty()) return choices;
  const Result<void> read = render::read_choice(choice, std::vector{text}, choices);
  if (!read) return tl::unexpected(read.error());
  return choices;
}

bool is_asked(const Inputs& inputs, PlanChoice choice) {
  return !inputs.kept || !is_about_plan(choice);
}

/// The words of `fsdp-plan MODEL options`, without the program.
std::vector<std::string> command_words(const Inputs& inputs) {
  std::vector<std::string> words = {inputs.model};
  for (const auto& [choice, texts] : inputs.unread) {
    for (const std::string& text : texts) words.insert(words.end(), {std::string(place_of(choice)), text});
  }
  if (inputs.objective != planner::SearchObjective::Time) {
    words.insert(words.end(), {"--objective", std::string(name_of(planner::kSearchObjectiveTable, inputs.objective))});
  }
  // Last, because patterns take all words that follow.
  for (std::string& word : render::command_words(inputs.choices)) words.push_back(std::move(word));
  return words;
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
  if (!file.plan.recipe.empty()) inputs.choices.recipe = file.plan.recipe;
  inputs.choices.trainable = file.plan.trainable;
  inputs.choices.frozen = file.plan.frozen;
  inputs.choices.lora = file.plan.lora;
  if (const std::optional<Packing>& packing = file.plan.packing) {
    const Dimension* tokens = find_dimension(file.plan.dimensions, "seq");
    if (tokens != nullptr) inputs.choices.packing = static_cast<std::int64_t>(tokens->value);
    inputs.choices.document_length = packing->lengths;
    inputs.choices.packed_attention = packing->attention;
  }
  inputs.choices.quantization = file.plan.quantization;
  inputs.choices.liger = file.plan.liger;
  inputs.choices.float8 = file.plan.float8;
  inputs.choices.also = file.plan.also;
  FSDP_TRY(const std::vector<Dimension> sizes, own_sizes_of(file.plan, planned.spec));
  for (const Dimension& size : sizes) {
    inputs.choices = with_change(std::move(inputs.choices), planner::size_choice(size.name, size.value));
  }
  if (inputs.choices.packing) inputs.choices.sequence.reset();
  if (planner::is_packed_to_one_row(inputs.choices)) inputs.choices.batch.reset();
  Errors errors = check(file.plan, planned.model);
  for (Error& error : errors) error.where = path + (error.where.empty() ? "" : ": " + error.where);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  file.plan.model_file = inputs.model;
  inputs.kept = std::move(file);
  return inputs;
}

}  // namespace

std::vector<std::string> texts_of(const Inputs& inputs, PlanChoice choice) {
  std::vector<std::string> texts = render::texts_of(choice, inputs.choices);
  const auto unread = inputs.unread.find(choice);
  if (unread != inputs.unread.end()) texts.insert(texts.end(), unread->second.begin(), unread->second.end());
  return texts;
}

std::optional<std::string> text_of(const Inputs& inputs, PlanChoice choice) {
  std::vector<std::string> texts = texts_of(inputs, choice);
  if (texts.empty()) return std::nullopt;
  return std::move(texts.back());
}

std::optional<std::string> text_of_dimension(const Inputs& inputs, const std::string& name) {
  std::optional<std::string> value;
  for (const std::string& text : texts_of(inputs, PlanChoice::SetDimension)) {
    if (is_of_dimension(text, name)) value = text.substr(name.size() + 1);
  }
  return value;
}

Inputs without(Inputs inputs, PlanChoice choice) {
  clear(inputs.choices, choice);
  inputs.unread.erase(choice);
  return inputs;
}

Inputs with_choices(Inputs inputs, const PlanChoices& change) {
  for (const PlanChoice choice : planner::plan_choices()) {
    if (!has(change, choice)) continue;
    inputs = without_excluded_by(std::move(inputs), choice);
    // For sizes, only the changed ones.
    if (choice != PlanChoice::SetDimension) inputs.unread.erase(choice);
  }
  for (const Dimension& each : change.dimensions) inputs = without_dimension(std::move(inputs), each.name);
  inputs.choices = with_change(std::move(inputs.choices), change);
  return inputs;
}

Result<Inputs> with_text(Inputs inputs, PlanChoice choice, const std::string& text) {
  FSDP_TRY(const PlanChoices change, read_one(choice, text));
  return with_choices(without(std::move(inputs), choice), change);
}

Inputs with_typed(Inputs inputs, PlanChoice choice, const std::string& text) {
  if (Result<Inputs> read = with_text(inputs, choice, text)) return *std::move(read);
  inputs = without(without_excluded_by(std::move(inputs), choice), choice);
  inputs.unread[choice] = {text};
  return inputs;
}

Result<Inputs> with_dimension(Inputs inputs, const std::string& name, const std::string& value) {
  FSDP_TRY(const PlanChoices change, read_one(PlanChoice::SetDimension, value.empty() ? "" : name + "=" + value));
  return with_choices(without_dimension(std::move(inputs), name), change);
}

void read_texts(PlanChoice choice, const std::vector<std::string>& texts, Inputs& inputs) {
  if (render::read_choice(choice, texts, inputs.choices)) return;
  if (choice != PlanChoice::SetDimension) {
    inputs.unread[choice] = texts;
    return;
  }
  // Each size is a choice of its own.
  for (const std::string& text : texts) {
    if (const Result<PlanChoices> size = read_one(choice, text)) {
      inputs.choices = with_change(std::move(inputs.choices), *size);
    } else {
      inputs.unread[choice].push_back(text);
    }
  }
}

Result<Inputs> with_options(Inputs inputs, const GivenOptions& options) {
  Errors errors;
  if (options.objective && inputs.kept) {
    errors.push_back({"--objective", "The plan of a file is predicted as it is.", "Leave it out, or open the model."});
  }
  inputs.objective = options.objective.value_or(inputs.objective);
  for (const auto& [choice, written] : options.texts) {
    if (inputs.kept && is_about_plan(choice)) {
      errors.push_back(
          {std::string(place_of(choice)), "A plan file sets that by itself.", "Leave it out, or open the model."});
      continue;
    }
    if (const Result<void> read = render::read_choice(choice, written, inputs.choices); !read)
      append(errors, read.error());
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return inputs;
}

bool names_machines(const Inputs& inputs) {
  return std::any_of(planner::plan_choices().begin(), planner::plan_choices().end(), [&](PlanChoice choice) {
    return is_about_machines(choice) && text_of(inputs, choice).has_value();
  });
}

planner::PlanRequest request_of(const Inputs& inputs) {
  planner::PlanRequest request{.model = inputs.model, .choices = inputs.choices};
  for (const PlanChoice choice : planner::plan_choices()) {
    if (!is_asked(inputs, choice)) clear(request.choices, choice);
    if (is_asked(inputs, choice) && inputs.unread.contains(choice)) request.unread.push_back(choice);
  }
  return request;
}

Errors unread_errors(const Inputs& inputs) {
  std::vector<PlanChoice> order = request_of(inputs).unread;
  std::stable_partition(order.begin(), order.end(), std::not_fn(planner::is_about_machines));
  Errors errors;
  for (const PlanChoice choice : order) {
    PlanChoices nothing;
    const Result<void> read = render::read_choice(choice, inputs.unread.at(choice), nothing);
    if (!read) append(errors, read.error());
  }
  return errors;
}

std::string command_of(const Inputs& inputs, const PlanFile& shown) {
  if (inputs.kept) return "fsdp-plan simulate - <<'PLAN'\n" + to_text(shown) + "PLAN\n";
  return "fsdp-plan " + text::command_text(command_words(inputs));
}

Inputs with_kept(const Inputs& inputs, PlanFile shown) {
  Inputs kept = inputs;
  // From now on the batch that the search chose belongs to the kept plan.
  if (text_of(kept, PlanChoice::GlobalBatch)) {
    kept = without(without(std::move(kept), PlanChoice::GlobalBatch), PlanChoice::Accumulate);
    if (const Dimension* batch = find_dimension(shown.plan.dimensions, "batch")) {
      kept = with_choices(std::move(kept), planner::size_choice("batch", batch->value));
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
    // A folder is a model of Hugging Face.
    std::error_code ignored;
    if (!std::filesystem::is_directory(found, ignored)) {
      FSDP_TRY(const JsonDocument document, read_json_file(found));
      if (document.root.find("mesh") != nullptr) return inputs_of_plan_file(found, library);
    }
  }
  Inputs inputs;
  inputs.model = path;
  return inputs;
}

}  // namespace fsdp::gui

// A file's kind is that of the keys that it has. Files that a configuration names are read beside it: DeepSpeed's by
// accelerate and the Trainer, accelerate's by TRL.
//
// Not modeled: settings that a script makes itself; options of launchers other than accelerate's.

#include "planner/check/read_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/base/files.h"
#include "core/formats/yaml_document.h"
#include "core/library/model_file.h"
#include "core/library/model_library.h"
#include "core/model/model.h"
#include "core/spec/model_spec.h"
#include "planner/jobs/argument_object.h"
#include "planner/jobs/launch_line.h"
#include "planner/jobs/trl_keys.h"

namespace fsdp::planner {

namespace {

bool has_any(const JsonValue& root, std::initializer_list<std::string_view> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](std::string_view key) { return root.find(key) != nullptr; });
}

/// `nullopt` for other files.
std::optional<ConfigurationKind> kind_of(const JsonValue& root) {
  if (root.find("base_model") != nullptr) return ConfigurationKind::Axolotl;
  if (root.find("model_name_or_path") != nullptr && root.find("finetuning_type") == nullptr) {
    return ConfigurationKind::Trainer;  // TRL's may have options of accelerate.
  }
  if (has_any(root, {"zero_optimization", "train_micro_batch_size_per_gpu"})) {
    return ConfigurationKind::DeepSpeed;
  }
  if (has_any(root, {"distributed_type", "compute_environment", "num_processes", "num_machines", "deepspeed_config",
                     "megatron_lm_config", "main_training_function"})) {
    return ConfigurationKind::Launch;
  }
  // Programs whose settings have the Trainer's names among their own.
  if (has_any(root, {"finetuning_type", "model_type", "architectures"})) return std::nullopt;
  const auto keys = trl_sft_keys();
  const auto known = std::count_if(root.members.begin(), root.members.end(), [&](const JsonMember& member) {
    return std::any_of(keys.begin(), keys.end(), [&](const JobKey& row) { return row.name == member.key; });
  });
  return known > 1 ? std::optional(ConfigurationKind::Trainer) : std::nullopt;
}

/// TRL's classes have these beside those of the Trainer.
bool is_of_trl(const JsonValue& root) {
  const bool is_small =
      has_any(root, {"packing", "max_length", "max_seq_length", "use_peft", "dataset_name", "datasets", "loss_type",
                     "padding_free", "accelerate_config", "dtype", "lora_r"});
  return is_small && root.find("model_name_or_path") != nullptr;
}

/// TRL's other trainers have keys that supervised fine-tuning lacks.
bool is_of_another_trl(const JsonValue& root) {
  return has_any(root, {"beta", "num_generations", "reward_model_path", "max_prompt_length", "max_completion_length",
                        "reward_funcs", "use_vllm"});
}

void note_kind(CheckedRun& run, const JsonValue& root) {
  if (!is_of_trl(root)) return;
  run.is_trl = true;
  run.is_sft = !is_of_another_trl(root);
}

bool is_configuration(const std::string& path) {
  return path.ends_with(".yaml") || path.ends_with(".yml") || path.ends_with(".json");
}

/// Reads JSON as JSON, for its errors; comments and everything else as YAML.
Result<JsonDocument> read_settings(const std::string& path) {
  return path.ends_with(".json") ? read_json_file(path) : read_yaml_file(path);
}

/// The path as written, or beside the file that names it; `nullopt` if neither exists.
std::optional<std::string> named_file(const std::string& path, const JsonDocument* by) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return path;
  if (by == nullptr) return std::nullopt;
  const std::filesystem::path beside = std::filesystem::path(by->name).parent_path() / path;
  if (std::filesystem::is_regular_file(beside, ignored)) return beside.string();
  return std::nullopt;
}

/// Adds a file of DeepSpeed that a setting names.
Result<void> add_named(CheckedRun& run, const Setting& setting) {
  const std::string path = setting.text();
  if (path.empty() || run.has(ConfigurationKind::DeepSpeed)) return {};
  const std::optional<std::string> file = named_file(path, setting.document);
  if (!file) {
    run.notes.push_back(fmt::format("{} is not here, and was not checked.", path));
    return {};
  }
  FSDP_TRY(JsonDocument document, read_settings(*file));
  run.names.push_back(document.name);
  run.add(ConfigurationKind::DeepSpeed, std::move(document));
  return {};
}

std::int64_t elements_below(const Model& model, int module) {
  std::int64_t sum = 0;
  const Module& here = model.modules[static_cast<std::size_t>(module)];
  for (const int parameter : here.parameters) {
    sum += num_elements(model.parameters[static_cast<std::size_t>(parameter)].shape);
  }
  for (const int child : here.children) sum += elements_below(model, child);
  return sum;
}

/// What rules ask about a model; `nullopt` if it is not here.
std::optional<CheckedModel> facts_of(const std::string& name, const std::string& library) {
  const auto path = find_model_file(name, library);
  if (!path) return std::nullopt;
  const auto spec = read_model_file(*path);
  if (!spec) return std::nullopt;
  const auto model = build_model(*spec);
  if (!model) return std::nullopt;
  CheckedModel facts;
  facts.name = name;
  facts.parameters = num_parameters(*model);
  for (const Module& module : model->modules) facts.classes.insert(module.class_name);
  for (const Module& module : model->modules) {
    if (module.parent < 0) continue;
    const auto index = static_cast<int>(&module - model->modules.data());
    facts.largest_module = std::max(facts.largest_module, elements_below(*model, index));
  }
  return facts;
}

/// Reads what the configurations name: other files, and the model.
Result<void> complete(CheckedRun& run, const std::string& library) {
  const Setting launcher = run.trainer("accelerate_config");
  const auto& launches = run.layers_of(ConfigurationKind::Launch);
  const bool has_file =
      std::any_of(launches.begin(), launches.end(), [](const JsonDocument* layer) { return layer->name != "command"; });
  if (launcher && !has_file) {
    const std::optional<std::string> file = named_file(launcher.text(), launcher.document);
    FSDP_TRY(JsonDocument document, launcher_named(file.value_or(launcher.text()), text_of(launcher.place())));
    document.is_translated = !file;
    if (file) run.names.push_back(document.name);
    run.add(ConfigurationKind::Launch, std::move(document));
  }
  for (const Setting& setting : {run.launch("deepspeed_config.deepspeed_config_file"), run.trainer("deepspeed")}) {
    if (const auto added = add_named(run, setting); !added) return tl::unexpected(added.error());
  }
  const Setting named = run.trainer("model_name_or_path");
  const Setting model = named ? named : run.axolotl("base_model");
  if (!run.model && model) {
    run.model = facts_of(model.text(), library);
    if (!run.model)
      run.notes.push_back(fmt::format("{} is no model that is here, so rules about it are left out.", model.text()));
  }
  return {};
}

struct ReadFile {
  ConfigurationKind kind = ConfigurationKind::Launch;
  JsonDocument document;
};

Result<ReadFile> read_file_of_run(const std::string& path) {
  FSDP_TRY(JsonDocument document, read_settings(path));
  const std::optional<ConfigurationKind> kind =
      document.root.type == JsonType::Object ? kind_of(document.root) : std::nullopt;
  if (!kind) {
    return failure(path, "It is no configuration that is checked.",
                   "Checked are those of accelerate launch, TRL, transformers' Trainer, axolotl and DeepSpeed.");
  }
  return ReadFile{*kind, std::move(document)};
}

/// The options between places of a line, without the words before the first.
Result<JsonDocument> options_between(std::span<const std::string> words, std::size_t from, std::size_t to,
                                     std::string (*key_of)(const std::string&)) {
  std::vector<std::string> kept(words.begin(), words.end());
  if (from < to && kept[to - 1] == "-m") --to;
  for (std::size_t w = from; w < to; ++w) {
    const bool is_short =
        kept[w].size() > 1 && kept[w][0] == '-' && std::isalpha(static_cast<unsigned char>(kept[w][1])) != 0;
    if (is_short) kept[w].insert(0, "-");  // A script's own option, "-v 3".
  }
  while (from < to && !kept[from].starts_with("--")) ++from;
  return ArgumentLine(kept).object(from, to, key_of);
}

/// Where a line's script is, and its launcher's options begin.
struct LineParts {
  bool is_trl = false;
  bool is_accelerate = false;
  std::size_t options = 1;
  std::size_t script = 0;
};

std::optional<LineParts> parts_of(std::span<const std::string> words) {
  LineParts parts;
  if (words.size() > 1 && words[0] == "trl") return LineParts{.is_trl = true, .options = 2, .script = 1};
  if (const std::size_t options = options_of_accelerate(words); options > 0) {
    parts = {.is_accelerate = true, .options = options};
  }
  for (std::size_t w = parts.options; w < words.size(); ++w) {
    const bool is_module = words[w - 1] == "-m" || words[w - 1] == "--module" || words[w].starts_with("trl.scripts.");
    const bool is_launcher = words[w].starts_with("torch.distributed.") || words[w].starts_with("-");
    if (is_launcher || (!is_module && !words[w].ends_with(".py"))) continue;
    parts.script = w;
    return parts;
  }
  return std::nullopt;
}

bool starts_sft(std::span<const std::string> words, const LineParts& parts) {
  const std::string& script = words[parts.script];
  return script == "sft" || script == "trl.scripts.sft" || std::filesystem::path(script).filename() == "sft.py";
}

}  // namespace

Result<std::vector<CheckedRun>> read_runs(std::span<const std::string> files, const std::string& library) {
  std::vector<ReadFile> read;
  std::optional<CheckedModel> model;
  Errors errors;
  for (const std::string& file : files) {
    if (!is_configuration(file)) {
      model = facts_of(file, library);
      if (!model)
        errors.push_back({file, "It is neither a configuration nor a model that is here.",
                          "Write a .yaml or .json file, or a model."});
      continue;
    }
    Result<ReadFile> one = read_file_of_run(file);
    if (one) {
      read.push_back(*std::move(one));
    } else {
      append(errors, one.error());
    }
  }
  if (errors.empty() && read.empty())
    errors.push_back({"check", "There is no configuration to check.", "Write a .yaml or .json file."});
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  int counts[kNumConfigurationKinds] = {};
  for (const ReadFile& each : read) ++counts[static_cast<std::size_t>(each.kind)];
  const bool is_one = std::all_of(std::begin(counts), std::end(counts), [](int count) { return count < 2; });
  std::vector<CheckedRun> runs;
  for (ReadFile& each : read) {
    if (runs.empty() || !is_one) runs.emplace_back();
    runs.back().model = model;
    runs.back().names.push_back(each.document.name);
    const JsonDocument& added = runs.back().add(each.kind, std::move(each.document));
    if (each.kind == ConfigurationKind::Trainer) note_kind(runs.back(), added.root);
  }
  for (CheckedRun& run : runs) {
    if (const auto done = complete(run, library); !done) return tl::unexpected(done.error());
  }
  return runs;
}

namespace {

/// `axolotl train FILE [options] [-- arguments of accelerate launch]`
Result<CheckedRun> read_axolotl_run(std::span<const std::string> words, const std::string& library) {
  CheckedRun run;
  run.names.emplace_back("the line");
  const auto rule = std::find(words.begin(), words.end(), "--");
  FSDP_TRY(JsonDocument own, options_between(words, 3, static_cast<std::size_t>(rule - words.begin()), same_key));
  run.add(ConfigurationKind::Axolotl, std::move(own));
  FSDP_TRY(JsonDocument file, read_settings(words[2]));
  run.names.push_back(file.name);
  run.add(ConfigurationKind::Axolotl, std::move(file));
  if (const auto done = complete(run, library); !done) return tl::unexpected(done.error());
  return run;
}

}  // namespace

Result<CheckedRun> read_run_line(std::span<const std::string> words, const std::string& library) {
  if (words.size() > 2 && words[0] == "axolotl" && words[1] == "train") return read_axolotl_run(words, library);
  const std::optional<LineParts> parts = parts_of(words);
  if (!parts) {
    return failure("--", "This line starts no script.",
                   "Write accelerate launch ... train.py ..., trl sft ... or axolotl train FILE; "
                   "docs/how-to/check-your-config.md.");
  }
  CheckedRun run;
  FSDP_TRY(JsonDocument own, options_between(words, parts->is_trl ? 2 : parts->script + 1, words.size(),
                                             parts->is_trl ? own_key_of_trl : same_key));
  JsonDocument launch;
  if (parts->is_trl || parts->is_accelerate) {
    const std::size_t end = parts->is_trl ? words.size() : parts->script;
    FSDP_TRY(launch, options_between(words, parts->options, end, parts->is_trl ? launch_key_of_trl : key_of_launch));
    set_kind(launch);
    taken(launch, "module");
  }
  const std::optional<TakenMember> given = taken(own, "config");
  std::optional<std::string> config = given ? std::optional(given->text) : std::nullopt;
  const std::size_t after = parts->script + 1;
  if (!config && after < words.size() && is_configuration(words[after])) config = words[after];
  const std::optional<TakenMember> launcher = taken(launch, "config_file");
  run.names.emplace_back("the line");
  run.is_trl = parts->is_trl || starts_sft(words, *parts);
  run.is_sft = starts_sft(words, *parts);
  run.add(ConfigurationKind::Trainer, std::move(own));
  if (config && is_configuration(*config)) {
    FSDP_TRY(JsonDocument file, read_settings(*config));
    run.names.push_back(file.name);
    if (file.root.type == JsonType::Object) run.add(ConfigurationKind::Trainer, std::move(file));
  }
  if (parts->is_trl || parts->is_accelerate) {
    if (!launch.root.members.empty() || launcher) run.add(ConfigurationKind::Launch, std::move(launch));
    if (launcher) {
      FSDP_TRY(JsonDocument file, read_settings(launcher->text));
      run.names.push_back(file.name);
      run.add(ConfigurationKind::Launch, std::move(file));
    }
  }
  if (const auto done = complete(run, library); !done) return tl::unexpected(done.error());
  return run;
}

}  // namespace fsdp::planner

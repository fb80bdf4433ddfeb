// Which program a file or a line is for, and the files that a line names. A file is told by its content: base_model is
// axolotl's key, model_name_or_path TRL's and, beside stage or finetuning_type, LLaMA-Factory's; NeMo Automodel's names
// a recipe or a class of it; [model] and [training] are torchtitan's.
//
// Sources: trl 1.16.0, cli/commands/training.py, cli/accelerate_config.py and accelerate_configs/*.yaml; accelerate
// 1.15.0, commands/launch.py (launch_command_parser); axolotl 0.19.0, cli/main.py (train) and cli/utils/train.py;
// llamafactory 0.9.5, launcher.py and hparams/parser.py (read_args).

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "core/base/files.h"
#include "core/base/nearest.h"
#include "core/formats/toml_document.h"
#include "core/formats/yaml_document.h"
#include "planner/jobs/argument_object.h"
#include "planner/jobs/automodel_job.h"
#include "planner/jobs/axolotl_job.h"
#include "planner/jobs/job.h"
#include "planner/jobs/job_source.h"
#include "planner/jobs/launch_line.h"
#include "planner/jobs/llamafactory_job.h"
#include "planner/jobs/titan_line.h"
#include "planner/jobs/trl_job.h"
#include "planner/jobs/trl_keys.h"
#include "planner/jobs/verl_job.h"

namespace fsdp::planner {

namespace {

/// TRL's scripts: the file, the module, and the word after `trl`.
struct TrlScriptNames {
  TrlScript script;
  std::string_view file;
  std::string_view module;
  std::string_view command;
};
constexpr TrlScriptNames kTrlScripts[] = {{TrlScript::Sft, "sft.py", "trl.scripts.sft", "sft"},
                                          {TrlScript::Dpo, "dpo.py", "trl.scripts.dpo", "dpo"}};
constexpr std::string_view kAxolotlModule = "axolotl.cli.train";
constexpr std::string_view kLlamaFactoryModule = "llamafactory.launcher";

/// A TRL job with the files that the lines name.
Result<JobSource> with_files(JobSource source, const FileReader& read_file) {
  JobLaunch& launch = source.launch;
  if (const auto config = taken(launch.line, "config")) {
    FSDP_TRY(launch.file, read_file(config->text));
  }
  if (const auto file = taken(launch.launch_line, "config_file")) {
    FSDP_TRY(launch.launcher, read_file(file->text));
  }
  for (JsonDocument* document : {&launch.line, launch.file ? &*launch.file : nullptr}) {
    if (document == nullptr || launch.launcher) continue;
    const auto named = taken(*document, "accelerate_config");
    if (named) {
      FSDP_TRY(launch.launcher, launcher_named(named->text, named->where, read_file));
    }
  }
  return source;
}

bool is_yaml(std::string_view path) {
  return path.ends_with(".yaml") || path.ends_with(".yml");
}

/// Whether a word is src/train.py of LLaMA-Factory's repository, which a configuration follows.
bool is_script_of_llamafactory(std::span<const std::string> words, std::size_t w) {
  const std::filesystem::path path(words[w]);
  return path.filename() == "train.py" && path.parent_path().filename() == "src" && w + 1 < words.size() &&
         is_yaml(words[w + 1]);
}

/// The script of TRL that a word names; nullptr for other words.
const TrlScriptNames* script_of_trl(const std::string& word) {
  const std::string file = std::filesystem::path(word).filename().string();
  for (const TrlScriptNames& each : kTrlScripts) {
    if (file == each.file || word == each.module) return &each;
  }
  return nullptr;
}

/// `accelerate launch [options] SCRIPT [arguments]`, or the module that is the same: the places of its options and its
/// script.
struct AccelerateLine {
  std::size_t options = 0;
  std::size_t script = 0;
};
std::optional<AccelerateLine> accelerate_line(std::span<const std::string> words) {
  const std::size_t options = options_of_accelerate(words);
  for (std::size_t w = options; options > 0 && w < words.size(); ++w) {
    const bool is_module = words[w] == kAxolotlModule || words[w] == kLlamaFactoryModule;
    if (is_module || script_of_trl(words[w]) != nullptr || is_script_of_llamafactory(words, w)) {
      return AccelerateLine{options, w};
    }
  }
  return std::nullopt;
}

bool starts_with(std::span<const std::string> words, std::string_view first, std::string_view second) {
  return words.size() > 1 && words[0] == first && words[1] == second;
}
/// The script that `trl COMMAND` runs; nullptr for other lines.
const TrlScriptNames* command_of_trl(std::span<const std::string> words) {
  for (const TrlScriptNames& each : kTrlScripts) {
    if (starts_with(words, "trl", each.command)) return &each;
  }
  return nullptr;
}
bool is_axolotl_line(std::span<const std::string> words) {
  return starts_with(words, "axolotl", "train");
}
bool is_llamafactory_line(std::span<const std::string> words) {
  return starts_with(words, "llamafactory-cli", "train") || starts_with(words, "lmf", "train");
}

/// The key of axolotl that an option sets; none for --launcher, which only says what starts the processes.
std::string key_of_axolotl(const std::string& name) {
  return name == "launcher" ? "" : name;
}

/// `own`: axolotl's arguments, the file first. `launcher`: those of `accelerate launch`.
Result<JobSource> axolotl_line(std::span<const std::string> words, WordRange own, WordRange launcher,
                               const FileReader& read_file) {
  const ArgumentLine line(words);
  if (own.from == own.to || words[own.from].starts_with("--")) {
    return failure(line.where(words.size() - 1), "The line names no configuration.", "Write axolotl train FILE.");
  }
  JobSource source{.program = &axolotl_program(),
                   .launch = {},
                   .words = {words.begin(), words.end()},
                   .is_line = true,
                   .own = {own.from + 1, own.to},
                   .of_launch = launcher};
  FSDP_TRY(source.launch.file, read_file(words[own.from]));
  remove_fsdp_prefixes(*source.launch.file);
  FSDP_TRY(source.launch.line, line.object(own.from + 1, own.to, key_of_axolotl));
  FSDP_TRY(source.launch.launch_line, line.object(launcher.from, launcher.to, key_of_launch));
  set_kind(source.launch.launch_line);
  return source;
}

/// `axolotl train FILE [options] [-- arguments of accelerate launch]`
Result<JobSource> find_axolotl_line(std::span<const std::string> words, const FileReader& read_file) {
  const auto rule = std::find(words.begin(), words.end(), "--");
  const auto end = static_cast<std::size_t>(rule - words.begin());
  return axolotl_line(words, {2, end}, {std::min(end + 1, words.size()), words.size()}, read_file);
}

/// `own`: LLaMA-Factory's arguments, the file first if there is one. `launcher`: those of `accelerate launch`.
Result<JobSource> llamafactory_line(std::span<const std::string> words, WordRange own, WordRange launcher,
                                    const FileReader& read_file) {
  // key=value after a configuration gives another value of its key.
  std::vector<std::string> dashed(words.begin(), words.end());
  for (std::size_t w = own.from; w < own.to; ++w) {
    const bool is_key = dashed[w].find('=') != std::string::npos && !dashed[w].starts_with("--");
    if (is_key) dashed[w].insert(0, "--");
  }
  const ArgumentLine line(dashed);
  const bool has_file = own.from < own.to && is_yaml(words[own.from]);
  JobSource source{.program = &llamafactory_program(),
                   .launch = {},
                   .words = {words.begin(), words.end()},
                   .is_line = true,
                   .own = {own.from + (has_file ? 1 : 0), own.to},
                   .of_launch = std::nullopt};
  if (launcher.from < launcher.to) source.of_launch = launcher;
  JobLaunch& launch = source.launch;
  launch.is_accelerate = launcher.from < launcher.to;
  launch.file = no_arguments();
  if (has_file) {
    FSDP_TRY(launch.file, read_file(words[own.from]));
  }
  FSDP_TRY(launch.line, line.object(source.own.from, own.to, same_key));
  FSDP_TRY(launch.launch_line, line.object(launcher.from, launcher.to, key_of_launch));
  set_kind(launch.launch_line);
  if (const auto file = taken(launch.launch_line, "config_file")) {
    FSDP_TRY(launch.launcher, read_file(file->text));
  }
  return source;
}

Error not_read(std::span<const std::string> words) {
  return {
      "--", fmt::format("\"{}\" starts no training that is read without running it.", words.front()),
      "Read are trl sft and dpo, axolotl train, llamafactory-cli train, accelerate launch with TRL's sft.py or dpo.py, "
      "-m axolotl.cli.train or LLaMA-Factory's src/train.py, torchrun with -m torchtitan.train, and -m "
      "verl.trainer.main_ppo or verl.trainer.sft_trainer. fsdp-plan plan -- COMMAND captures any script."};
}

}  // namespace

bool is_job_line(std::span<const std::string> words) {
  return command_of_trl(words) != nullptr || is_axolotl_line(words) || is_llamafactory_line(words) ||
         is_titan_line(words) || is_verl_line(words) || accelerate_line(words).has_value();
}

Result<JsonDocument> parse_config(std::string text, const std::string& path) {
  return path.ends_with(".toml") ? parse_toml(std::move(text), path) : parse_yaml(std::move(text), path);
}

Result<JsonDocument> read_config_file(const std::string& path) {
  return path.ends_with(".toml") ? read_toml_file(path) : read_yaml_file(path);
}

Result<std::optional<JobSource>> find_job(const std::string& path, const FileReader& read_file) {
  if (path.ends_with(".toml")) {
    FSDP_TRY(JsonDocument toml, read_file(path));
    if (!is_titan_toml(toml)) return std::nullopt;
    return titan_toml_source(std::move(toml), path);
  }
  if (!is_yaml(path)) return std::nullopt;
  Result<JsonDocument> file = read_file(path);
  if (!file) return std::nullopt;
  JobSource source{.program = nullptr,
                   .launch = {no_arguments(), std::move(*file), no_arguments(), std::nullopt},
                   .words = {},
                   .is_line = false,
                   .own = {},
                   .of_launch = std::nullopt};
  JsonDocument& document = *source.launch.file;
  if (document.root.find("base_model") != nullptr) {
    source.program = &axolotl_program();
    source.words = {"axolotl", "train", path};
    source.own = {3, 3};
    remove_fsdp_prefixes(document);
    return source;
  }
  if (is_automodel_file(document.root)) {
    source.program = &automodel_program();
    source.words = {"automodel", path};
    source.own = {2, 2};
    return source;
  }
  if (document.root.find("model_name_or_path") == nullptr) return std::nullopt;
  if (document.root.find("stage") != nullptr || document.root.find("finetuning_type") != nullptr) {
    source.program = &llamafactory_program();
    source.words = {"llamafactory-cli", "train", path};
    source.own = {3, 3};
    return source;
  }
  const auto dpo = keys_of_dpo_alone();
  const bool is_dpo =
      std::any_of(dpo.begin(), dpo.end(), [&](const JobKey& key) { return document.root.find(key.name) != nullptr; });
  source.program = &trl_program(is_dpo ? TrlScript::Dpo : TrlScript::Sft);
  source.words = {"trl", is_dpo ? "dpo" : "sft", "--config", path};
  source.own = {2, source.words.size()};
  source.of_launch = source.own;
  return with_files(std::move(source), read_file);
}

Result<std::optional<Job>> read_job(const std::string& path, const TypedBesideJob& typed) {
  FSDP_TRY(std::optional<JobSource> source, find_job(path, read_config_file));
  if (!source) return std::nullopt;
  source->launch.typed = typed;
  return source->program->read(source->launch);
}

Result<JobSource> find_job_line(std::span<const std::string> words, const FileReader& read_file,
                                const std::optional<JsonDocument>& config) {
  if (is_titan_line(words)) return find_titan_line(words, config, read_file);
  if (is_verl_line(words)) return find_verl_line(words);
  if (is_axolotl_line(words)) return find_axolotl_line(words, read_file);
  if (is_llamafactory_line(words)) return llamafactory_line(words, {2, words.size()}, {0, 0}, read_file);
  const ArgumentLine line(words);
  JobSource source{.program = nullptr,
                   .launch = {},
                   .words = {words.begin(), words.end()},
                   .is_line = true,
                   .own = {2, words.size()},
                   .of_launch = WordRange{2, words.size()}};
  if (const TrlScriptNames* command = command_of_trl(words)) {
    source.program = &trl_program(command->script);
    FSDP_TRY(source.launch.line, line.object(2, words.size(), own_key_of_trl));
    FSDP_TRY(source.launch.launch_line, line.object(2, words.size(), launch_key_of_trl));
    set_kind(source.launch.launch_line);
    return with_files(std::move(source), read_file);
  }
  const std::optional<AccelerateLine> found = accelerate_line(words);
  if (!found) return tl::unexpected(Errors{not_read(words)});
  const std::string& script = words[found->script];
  const TrlScriptNames* of_trl = script_of_trl(script);
  const bool is_module =
      script == kAxolotlModule || script == kLlamaFactoryModule || (of_trl != nullptr && script == of_trl->module);
  const WordRange own{found->script + 1, words.size()};
  const WordRange options{found->options, found->script - (is_module ? 1 : 0)};
  if (script == kAxolotlModule) return axolotl_line(words, own, options, read_file);
  if (script == kLlamaFactoryModule || is_script_of_llamafactory(words, found->script)) {
    return llamafactory_line(words, own, options, read_file);
  }
  source.program = &trl_program(of_trl->script);
  source.own = own;
  source.of_launch = options;
  FSDP_TRY(source.launch.launch_line, line.object(options.from, options.to, key_of_launch));
  FSDP_TRY(source.launch.line, line.object(own.from, own.to, same_key));
  set_kind(source.launch.launch_line);
  return with_files(std::move(source), read_file);
}

Result<Job> read_job_line(std::span<const std::string> words, const std::optional<JsonDocument>& config) {
  FSDP_TRY(const JobSource source, find_job_line(words, read_config_file, config));
  return source.program->read(source.launch);
}

}  // namespace fsdp::planner

// Launchers take their own options first, then the script, then the script's options. So a word that ends in ".py", or
// the one after -m, ends the launcher's part. If a script has another name, an option of it may be mistaken for the
// launcher's option of the same name.
//
// Sources: torch/distributed/run.py (torch 2.11), accelerate/commands/launch.py (1.15), deepspeed/launcher/runner.py
// (0.19).
//
// Not modeled: hostfiles of deepspeed, accelerate's default configuration file, srun and mpirun. Users give --gpus and
// --nodes instead.

#include "runs/rehearse_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/nearest.h"

namespace fsdp::runs {

namespace {

constexpr std::size_t kMostCandidates = 20000;  // Names on PATH that are searched for a hint.

struct LauncherNames {
  std::string_view name;
  std::string_view module;     // After "python -m".
  std::string_view processes;  // Its options, with "-" for "_".
  std::string_view nodes;
  bool processes_are_of_all_nodes;
};
constexpr std::array kLaunchers = {
    LauncherNames{"torchrun", "torch.distributed.run", "--nproc-per-node", "--nnodes", false},
    LauncherNames{"torchrun", "torch.distributed.launch", "--nproc-per-node", "--nnodes", false},
    LauncherNames{"accelerate", "accelerate.commands.launch", "--num-processes", "--num-machines", true},
    LauncherNames{"deepspeed", "deepspeed.launcher.runner", "--num-gpus", "--num-nodes", false},
};

bool is_python(std::string_view program) {
  const std::string_view name = program.substr(program.rfind('/') + 1);
  return name.starts_with("python");
}

std::optional<std::int64_t> number(std::string_view text) {
  // "2:4" is a range of nodes.
  text = text.substr(0, text.find(':'));
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

/// "--nproc_per_node=8" is {"--nproc-per-node", "8"}; without "=" the value is the next word.
struct SplitOption {
  std::string name;
  std::optional<std::string> value;
};
SplitOption split(const std::string& word, std::span<const std::string> next) {
  SplitOption option{.name = word.substr(0, word.find('=')), .value = std::nullopt};
  if (option.name.size() < word.size()) {
    option.value = word.substr(option.name.size() + 1);
  } else if (!next.empty()) {
    option.value = next.front();
  }
  std::replace(option.name.begin(), option.name.end(), '_', '-');
  return option;
}

/// accelerate's configuration: flat YAML, in which two lines matter here.
void read_accelerate_config(const std::string& path, Launch& launch, std::optional<std::int64_t>& processes) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string value = line.substr(colon + 1);
    value.erase(std::remove(value.begin(), value.end(), ' '), value.end());
    const std::string_view key = std::string_view(line).substr(0, colon);
    if (key == "num_processes" && !processes) processes = number(value);
    if (key == "num_machines" && !launch.nodes) launch.nodes = number(value);
  }
}

/// The launcher's options, up to the script.
void read_options(const LauncherNames& names, std::span<const std::string> words, Launch& launch) {
  std::optional<std::int64_t> processes;
  std::string config;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.ends_with(".py")) {
      launch.script = word;
      break;
    }
    const bool is_module = word == "-m" || word == "--module";
    if (is_module && i + 1 < words.size()) {
      launch.script = words[i + 1];
      break;
    }
    const SplitOption option = split(word, words.subspan(i + 1));
    if (!option.value) continue;
    if (option.name == names.processes) {
      processes = number(*option.value);
      if (!processes) launch.counts_by = fmt::format("{} {}", option.name, *option.value);
    }
    if (option.name == names.nodes) launch.nodes = number(*option.value);
    if (option.name == "--config-file") config = *option.value;
  }
  if (!config.empty() && names.processes_are_of_all_nodes) read_accelerate_config(config, launch, processes);
  launch.gpus_per_node = processes;
  if (processes && names.processes_are_of_all_nodes) {
    launch.gpus_per_node = std::max<std::int64_t>(1, *processes / launch.nodes.value_or(1));
  }
}

bool is_program(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::vector<std::string> folders_of(std::string_view path) {
  std::vector<std::string> folders;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    // An empty entry is the working directory.
    folders.emplace_back(end == begin ? "." : path.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

std::string hint_for(const std::string& name, const std::vector<std::string>& folders) {
  std::error_code ignored;
  if (name.ends_with(".py") && std::filesystem::exists(name, ignored)) {
    return fmt::format("Write python {}.", name);
  }
  std::vector<std::string> candidates;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      if (candidates.size() == kMostCandidates) break;
      candidates.push_back(entry->path().filename().string());
    }
  }
  std::sort(candidates.begin(), candidates.end());
  const std::optional<std::string> nearest = nearest_name(name, candidates);
  return nearest ? fmt::format("Did you mean {}?", *nearest) : "Write the command as you would type it.";
}

}  // namespace

Launch read_launch(std::span<const std::string> words) {
  Launch launch;
  const std::string_view program = std::string_view(words[0]).substr(words[0].rfind('/') + 1);
  const bool runs_module = is_python(program) && words.size() > 2 && words[1] == "-m";
  for (const LauncherNames& names : kLaunchers) {
    if (runs_module ? words[2] != names.module : program != names.name) continue;
    launch.launcher = names.name;
    read_options(names, words.subspan(runs_module ? 3 : 1), launch);
    return launch;
  }
  launch.is_python = is_python(program) || program.ends_with(".py");
  if (runs_module) {
    launch.script = words[2];
    return launch;
  }
  const auto script = std::find_if(words.begin(), words.end(), [](const auto& word) { return word.ends_with(".py"); });
  if (script != words.end()) launch.script = *script;
  return launch;
}

Result<std::string> find_program(const std::string& name, std::string_view path) {
  std::error_code ignored;
  if (name.find('/') != std::string::npos) {
    if (is_program(name)) return name;
    if (!std::filesystem::exists(name, ignored)) return failure(name, "There is no such program.", hint_for(name, {}));
    const bool is_folder = std::filesystem::is_directory(name, ignored);
    return failure(name, is_folder ? "This is a folder." : "This file cannot be executed.",
                   is_folder ? "Write the command as you would type it." : hint_for(name, {}));
  }
  const std::vector<std::string> folders = folders_of(path);
  for (const std::string& folder : folders) {
    const std::filesystem::path candidate = std::filesystem::path(folder) / name;
    if (is_program(candidate)) return candidate.string();
  }
  return failure(name, "There is no such program on PATH.", hint_for(name, folders));
}

}  // namespace fsdp::runs

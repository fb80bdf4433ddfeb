// Parses the command line with CLI11, and adds features that CLI11 2.1 lacks: all errors at once instead of the first,
// the nearest name of a mistyped option, and texts with a remedy. So every option is registered as plain text, and the
// code that uses it checks its meaning later.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "command/cli_options.h"
#include "core/base/nearest.h"
#include "core/base/split.h"
#include "planner/jobs/job.h"
#include "runs/launch_script.h"

namespace fsdp::command {

namespace {

constexpr std::string_view kHelpHint = "Run \"fsdp-plan --help-all\" for all options.";

std::vector<std::string_view> spellings_of(const OptionInfo& info) {
  return split(info.names, ',');
}

/// The word with the current name of its option. Adds a sentence about a changed name to `notes`.
std::string renamed(const std::string& word, Command command, std::vector<std::string>& notes) {
  const std::string_view before = std::string_view(word).substr(0, word.find('='));
  const std::string_view now = current_name(before, command);
  if (now == before) return word;
  notes.push_back(fmt::format("{} is now {}; the next version takes only that.", before, now));
  return std::string(now) + word.substr(before.size());
}

/// The first command in the words. Options may precede it.
Command command_in(std::span<const std::string> words) {
  for (const std::string& word : words) {
    for (const CommandInfo& info : commands()) {
      if (word == info.name) return info.command;
    }
  }
  return Command::Plan;
}

const OptionInfo* find_option(std::string_view name) {
  for (const OptionInfo& info : options()) {
    const std::vector<std::string_view> names = spellings_of(info);
    if (std::find(names.begin(), names.end(), name) != names.end()) return &info;
  }
  return nullptr;
}

/// "--gpus" for "--gpus=4"; empty for words that are not options, "-" and negative numbers.
std::string_view option_name(std::string_view word) {
  if (word.size() < 2 || word[0] != '-' || word == "--") return {};
  if (word[1] >= '0' && word[1] <= '9') return {};
  if (word[1] == '.') return {};
  return word.substr(0, word.find('='));
}

/// Options that users try, but that do not exist here, or no longer.
struct NotModeled {
  std::string_view names;  ///< With a blank around each name.
  std::string_view hint;
};
constexpr NotModeled kNotModeled[] = {
    {" --tp --tensor-parallel --tensor-parallel-size --pp --pipeline-parallel --pipeline-parallel-size --cp "
     "--context-parallel --ep --expert-parallel --sp ",
     "Only data parallelism is modeled: FSDP2, FSDP1, DDP and ZeRO. See --runtime, --shard and --replicate."},
    {" --peft --lora-r --lora-rank --use-peft --lora-alpha --lora-dropout --lora-target-modules ",
     "Write --lora 16, or --lora r=16,alpha=32,targets=q_proj+v_proj."},
    {" --sample-packing --sample_packing --padding-free --padding_free --use-remove-padding --pack ",
     "Write --packing 8192: a micro-batch is one row of so many tokens. --document-length says how long documents "
     "are."},
    {" --qlora --load-in-4bit --load_in_4bit --quantization --bits ",
     "Write --lora 16 --quantize nf4, or nf4,double for double quantization; docs/how-to/qlora.md."},
    {" --load-in-8bit --load_in_8bit ",
     "8-bit weights are not predicted. Write --lora 16 --quantize nf4 for four bits."},
    {" --gradient-checkpointing --gradient_checkpointing --grad-checkpointing --recompute --ac ",
     "Write --activation-checkpointing full; left out, it is searched."},
    {" --float8 --enable-float8 --enable_float8 --fp8-recipe ",
     "Write --fp8 tensorwise, rowwise or rowwise_with_gw_hp, torchao's recipes."},
    {" --bf16 ", "Write --precision mixed (bf16 with fp32 weights) or --precision bf16 (all in bf16)."},
    {" --fp16 ", "Write --precision fp16-mixed (fp16 with fp32 weights)."},
    {" --cpu-offload --cpu_offload --offload-optimizer ", "Write --offload yes; left out, it is searched."},
    {" --zero --zero-stage ",
     "Write --runtime zero1, zero2 or zero3, or --deepspeed FILE; of FSDP2, FULL_SHARD is like ZeRO-3, SHARD_GRAD_OP "
     "like ZeRO-2."},
    {" --compile --torch-compile --torch.compile --use-compile --inductor ",
     "torch.compile is not predicted: Inductor's fusions are known after it compiles. Rehearse the script, which "
     "compiles it: fsdp-plan rehearse -- COMMAND."},
    {" --events ",
     "-o keeps a plan, and \"fsdp-plan export PLAN --to chrome -o FILE\" writes the streams of its step."},
};

Error unknown_option(std::string_view name) {
  for (const NotModeled& group : kNotModeled) {
    if (group.names.find(fmt::format(" {} ", name)) != std::string_view::npos) {
      return {std::string(name), "There is no such option.", std::string(group.hint)};
    }
  }
  std::vector<std::string_view> known;
  for (const OptionInfo& info : options()) {
    for (const std::string_view candidate : spellings_of(info)) known.push_back(candidate);
  }
  const std::optional<std::string> nearest = nearest_name(name, known);
  return {std::string(name), "There is no such option.",
          nearest ? fmt::format("Did you mean {}?", *nearest) : std::string(kHelpHint)};
}

/// Finds the errors that would stop CLI11, in the order of the line: unknown options and missing values. Returns the
/// words without the unknown options, so that CLI11 can parse the rest, with the name of its option right before each
/// value. CLI11 then accepts any text as the value; otherwise it reads --name= as if the value came next, and drops
/// -.5.
std::vector<std::string> check_words(std::span<const std::string> words, Errors& errors) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view name = option_name(words[i]);
    if (name.empty()) {
      kept.push_back(words[i]);
      continue;
    }
    const OptionInfo* info = find_option(name);
    if (info == nullptr) {
      errors.push_back(unknown_option(name));
      // The next word is probably its value, unless it is written as --name=value.
      const bool has_value = name.size() < words[i].size();
      if (!has_value && i + 1 < words.size() && option_name(words[i + 1]).empty() && !kept.empty()) ++i;
      continue;
    }
    const bool has_value = name.size() < words[i].size();
    if (info->value.empty() && has_value) {
      errors.push_back({std::string(name), "This option takes no value.", fmt::format("Write {} alone.", name)});
      continue;
    }
    const bool is_last = i + 1 == words.size();
    if (!info->value.empty() && !has_value && (is_last || find_option(option_name(words[i + 1])) != nullptr)) {
      errors.push_back({std::string(name), "The value is missing.", fmt::format("Write {} {}.", name, info->value)});
      continue;
    }
    kept.emplace_back(name);
    if (info->value.empty()) continue;
    kept.push_back(has_value ? words[i].substr(name.size() + 1) : words[++i]);
    while (info->many && i + 1 < words.size() && option_name(words[i + 1]).empty()) {
      kept.insert(kept.end(), {std::string(name), words[++i]});
    }
  }
  return kept;
}

/// The commands that an argument probably misspells.
std::string nearest_command(const std::string& word) {
  std::vector<std::string_view> names;
  for (const CommandInfo& each : commands()) names.push_back(each.name);
  const std::optional<std::string> nearest = nearest_name(word, names);
  return nearest ? fmt::format(" Did you mean the command \"{}\"?", *nearest) : "";
}

/// The maximum number of a command's arguments: "A B" are two.
std::size_t most_arguments(const CommandInfo& info) {
  if (info.argument.empty() || info.argument.starts_with("--")) return 0;
  return info.command == Command::Compare || info.command == Command::Clock ? 2 : 1;
}

/// The minimum number of arguments: those without brackets, "WHAT [SIZE]".
std::size_t least_arguments(const CommandInfo& info) {
  const auto optional = static_cast<std::size_t>(std::count(info.argument.begin(), info.argument.end(), '['));
  return most_arguments(info) - std::min(most_arguments(info), optional);
}

/// A rehearsal has one plan, or a command after "--".
void check_rehearsal(const CommandLine& line, bool has_dashes, Errors& errors) {
  const std::string example = "fsdp-plan rehearse -- python train.py";
  if (has_dashes && line.script.empty()) {
    errors.push_back({"--", "The command is missing.", fmt::format("Write it after --: {}.", example)});
  } else if (has_dashes && !line.arguments.empty()) {
    errors.push_back({"", fmt::format("Unexpected \"{}\" before --.", line.arguments[0]),
                      "Give either a plan or a command after --."});
  } else if (!has_dashes && line.arguments.size() > 1) {
    errors.push_back({"", fmt::format("\"{}\" is one argument too many.", line.arguments[1]),
                      fmt::format("Write the command after --: {}.", example)});
  } else if (!has_dashes && line.arguments.empty()) {
    errors.push_back({"", "There is nothing to rehearse.", fmt::format("Write {}, or the name of a plan.", example)});
  }
}

/// A measurement has a command after "--"; otherwise the plan names its script.
void check_measurement(const CommandLine& line, bool has_dashes, Errors& errors) {
  const bool needs_script = line.command == Command::Measure || has_dashes;
  if (!needs_script || !line.script.empty()) return;
  errors.push_back({"--", "The command is missing.",
                    fmt::format("Write it after --: fsdp-plan {}-- torchrun --nproc-per-node 8 train.py.",
                                line.command == Command::Run ? "run plan.json " : "measure ")});
}

/// A script has nothing before "--". The capture itself reports a missing command with its other errors.
void check_script(const CommandLine& line, Errors& errors) {
  const bool is_capture = line.command == Command::Capture;
  const std::string example =
      is_capture ? "Write fsdp-plan capture -o my.model.json -- python train.py."
                 : fmt::format("Write fsdp-plan {} --gpus 8 --mem 24G -- python train.py.", info_of(line.command).name);
  if (!line.arguments.empty()) {
    errors.push_back(
        {"", fmt::format("Unexpected \"{}\": a script is captured by the command that starts it.", line.arguments[0]),
         example});
  } else if (!is_capture && line.script.empty()) {
    errors.push_back({"--", "There is no command to capture.", example});
  }
}

/// A check has files, or a command after "--".
void check_files(const CommandLine& line, bool has_dashes, Errors& errors) {
  const std::string example = "Write fsdp-plan check fsdp.yaml, or check -- accelerate launch ... train.py.";
  if (has_dashes && !line.arguments.empty()) {
    errors.push_back({"", fmt::format("Unexpected \"{}\" before --.", line.arguments[0]),
                      "Give either files or a command after --."});
  } else if (line.arguments.empty() && line.script.empty()) {
    errors.push_back({"", "There is nothing to check.", example});
  }
}

void check_arguments(const CommandLine& line, Errors& errors) {
  const CommandInfo& info = info_of(line.command);
  const std::string command = line.command == Command::Plan ? "fsdp-plan" : fmt::format("fsdp-plan {}", info.name);
  const std::size_t most = most_arguments(info);
  const std::size_t least = least_arguments(info);
  if (line.arguments.size() > most) {
    std::string hint = most == 0   ? fmt::format("\"{}\" takes none.", command)
                       : most == 1 ? fmt::format("\"{}\" takes one {}.", command, info.argument)
                                   : fmt::format("Write {} {}.", command, info.argument);
    if (line.command == Command::Plan) hint += nearest_command(line.arguments[0]);
    errors.push_back({"", fmt::format("\"{}\" is one argument too many.", line.arguments[most]), hint});
  }
  if (line.arguments.size() < least) {
    std::string swallowing;
    for (const OptionInfo& each : options()) {
      if (!each.many || !line.has(each.option)) continue;
      swallowing += fmt::format("{}{}", swallowing.empty() ? "" : " and ", flag_of(each.option));
    }
    const std::string_view missing = info.argument.substr(line.arguments.empty() ? 0 : info.argument.find(' ') + 1);
    const std::string_view first = missing.substr(0, missing.find(' '));
    errors.push_back({"", fmt::format("Missing argument: {}.", first),
                      swallowing.empty()
                          ? fmt::format("Write {} {}.", command, info.argument)
                          : fmt::format("Write it before {}, which takes all words that follow.", swallowing)});
  }
}

/// The command with the name of the first word; null if there is none.
const CommandInfo* find_command(const std::vector<std::string>& words) {
  const auto found = std::find_if(commands().begin(), commands().end(),
                                  [&](const CommandInfo& info) { return !words.empty() && words[0] == info.name; });
  return found == commands().end() ? nullptr : &*found;
}

/// Whether the line asks about the program itself, so that nothing else on it counts.
bool only_tells(const CommandLine& line) {
  return line.has(Option::Help) || line.has(Option::HelpAll) || line.has(Option::Version);
}

/// Removes the command's name from the words, and checks their number. `dashed`: the words after "--".
void take_command(CommandLine& line, std::vector<std::string> words, std::optional<std::vector<std::string>> dashed,
                  bool had_errors, Errors& errors) {
  constexpr CommandSet kWithScripts = Command::Rehearse | Command::Capture | Command::Plan | Command::Fit |
                                      Command::Run | Command::Measure | Command::Check;
  const CommandInfo* named = find_command(words);
  const bool is_read = words.empty() && dashed && (planner::is_job_line(*dashed) || runs::is_script_line(*dashed));
  const bool is_script = is_read || (named != nullptr && kWithScripts.has(named->command));
  if (dashed && is_script) {
    line.script = *dashed;
  } else if (dashed) {
    words.insert(words.end(), dashed->begin(), dashed->end());
  }
  if (!words.empty() && words[0] == "help") {  // As in "fsdp-plan help simulate".
    line.values[static_cast<std::size_t>(Option::Help)].emplace_back();
    words.erase(words.begin());
  }
  if (named = find_command(words); named != nullptr) {
    line.command = named->command;
    words.erase(words.begin());
  }
  line.arguments = std::move(words);
  if (only_tells(line) || had_errors) return;
  if (is_read) return;
  const bool may_have_script = line.command == Command::Plan || line.command == Command::Fit;
  if (line.command == Command::Capture || (may_have_script && is_script && dashed)) {
    check_script(line, errors);
  } else if (line.command == Command::Rehearse) {
    check_rehearsal(line, dashed.has_value(), errors);
  } else if (line.command == Command::Check) {
    check_files(line, dashed.has_value(), errors);
  } else {
    check_arguments(line, errors);
    if (line.command == Command::Run || line.command == Command::Measure) {
      check_measurement(line, dashed.has_value(), errors);
    }
  }
}

void check_options(const CommandLine& line, Errors& errors) {
  for (const OptionInfo& info : options()) {
    if (!line.has(info.option)) continue;
    if (!info.commands.has(line.command)) {
      errors.push_back({std::string(flag_of(info.option)),
                        fmt::format("The command {} does not take this option.", info_of(line.command).name), ""});
    }
    if (!info.repeatable && !info.value.empty() && line.all(info.option).size() > 1) {
      errors.push_back({std::string(flag_of(info.option)), fmt::format("Given {} times.", line.all(info.option).size()),
                        "Give it once."});
    }
  }
}

}  // namespace

Result<CommandLine> parse_command_line(std::span<const std::string> arguments) {
  Errors errors;
  // Words after "--" belong to the script's command.
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  std::optional<std::vector<std::string>> dashed;
  if (dashes != arguments.end()) dashed.emplace(dashes + 1, arguments.end());
  CommandLine line;
  std::vector<std::string> words(arguments.begin(), dashes);
  const Command command = command_in(words);
  for (std::string& word : words) word = renamed(word, command, line.notes);
  words = check_words(words, errors);
  const bool had_errors = !errors.empty();

  line.values.resize(options().size());
  std::vector<std::string> positional;
  std::vector<char> flags(options().size(), 0);
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  app.add_option("words", positional);
  for (std::size_t i = 0; i < options().size(); ++i) {
    const OptionInfo& info = options()[i];
    const std::string names(info.names);
    if (info.value.empty()) {
      app.add_flag_callback(names, [&flags, i] { flags[i] = 1; });
    } else {
      app.add_option(names, line.values[i])->allow_extra_args(false);
    }
  }
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the end.
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    errors.push_back({"", fmt::format("The command line cannot be read: {}.", error.what()), std::string(kHelpHint)});
    return tl::unexpected(std::move(errors));
  }
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] != 0) line.values[i].emplace_back();
  }
  // A word that only CLI11 reads as an option, such as -.5, is an argument.
  for (std::string& word : app.remaining()) positional.push_back(std::move(word));
  take_command(line, std::move(positional), std::move(dashed), had_errors, errors);
  if (!only_tells(line)) check_options(line, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return line;
}

}  // namespace fsdp::command

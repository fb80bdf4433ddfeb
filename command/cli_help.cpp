#include "command/cli_help.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "core/base/split.h"
#include "core/version.h"
#include "text/shell_text.h"
#include "text/terminal.h"

namespace fsdp::command {

namespace {

constexpr int kHelpWidth = 80;
constexpr int kHelpIndent = 30;
constexpr std::size_t kScreenIndent = 10;

constexpr std::string_view kExamples = R"(Examples:
  fsdp-plan qwen3_tts --gpus 4 --mem 16G
  fsdp-plan llama3_1_8b --gpu "H100 SXM" --gpus 8 --batch 2 --seq 8192
  fsdp-plan gpt2 --gpu T4 --gpus 4 --activation-checkpointing full -o plan.json
  fsdp-plan plan --gpus 8 --mem 24G -- torchrun --nproc-per-node 8 train.py
  fsdp-plan simulate plan.json --json
)";

constexpr std::string_view kRehearseText =
    R"(Run an unmodified training script with the real PyTorch on a Linux machine
without a GPU: CUDA and NCCL are replaced by stubs, and one process plays any
rank of any number of GPUs for a few steps. Prints what was applied, peak memory
with its lines of Python, the collectives of a step, or the out-of-memory error
that the real machine would give.

Usage: fsdp-plan rehearse [options] -- COMMAND...
       fsdp-plan rehearse PLAN [options]

COMMAND is python, torchrun, accelerate launch or deepspeed, as you would type
it. The number of GPUs comes from its arguments, or from --gpus and --nodes.
Nothing is computed: losses are zero and timings are meaningless.

Examples:
  fsdp-plan rehearse -- torchrun --nproc-per-node 8 train.py
  fsdp-plan rehearse --gpu T4 --gpus 4 --rank worst -- python train.py
  fsdp-plan rehearse --compare-with plan.json -- python train.py
  fsdp-plan rehearse plan.json --tolerance 2%

Exit codes: 0 it fits, 1 it runs out of memory, differs from the plan that is
run (in any collective, or by 0.5 % of a step's memory) or is outside
--tolerance, 2 the input is wrong, 3 the script failed, 130 it was interrupted.
)";

constexpr std::string_view kCaptureText =
    R"(Make a model file of an unmodified training script: run it with the real
PyTorch on a machine without a GPU, record what a few of its steps allocate,
free and compute, and check the result against the script itself. Then plan the
file like a shipped model.

Usage: fsdp-plan capture -o FILE [options] -- COMMAND...

COMMAND is python or torchrun, as you would type it. DistributedDataParallel,
FSDP and fully_shard of the script are left out: a plan takes their place.

Examples:
  fsdp-plan capture -o my.model.json -- python train.py
  fsdp-plan capture -o my.model.json --batch-option '--batch-size {}' \
      --batches 1,2,4,8 -- torchrun --nproc-per-node 8 train.py
  fsdp-plan my.model.json --gpus 8 --mem 24G -o plan.json
  fsdp-plan rehearse plan.json

Exit codes: 0 it is captured, 1 the capture is not what the script does, 2 the
input is wrong, 3 the script failed, 130 it was interrupted.
)";

constexpr std::string_view kExecuteText =
    R"(Train a plan: one process per rank on this machine, with LibTorch and Gloo, on
weights and data from a seed. Then print measured next to predicted values,
largest difference first.

Usage: fsdp-plan execute PLAN [options]

A plan of FSDP2 is trained by fsdp-exec; a plan of another framework by PyTorch,
DeepSpeed or torchtitan itself, in a Python that has them (--python).

On several machines, or under torchrun, mpirun or srun, start fsdp-exec PLAN
instead of a Python script, or python -m fsdp_plan_runner.execute PLAN.

Examples:
  fsdp-plan mlp --gpus 4 --mem 16G -o plan.json
  fsdp-plan execute plan.json
  fsdp-plan execute plan.json --steps 20 --tolerance 1% --json
  fsdp-plan execute plan.json --proof --run-dir proof

Exit codes: 0 it ran, 1 a term is outside --tolerance or not proven, 2 the
input is wrong, 3 a rank failed, 130 it was interrupted.
)";

constexpr std::string_view kReplayText =
    R"(Replay the allocations of a recorded run under other settings of PyTorch's
allocator: what it reserves, what stays unused, and the request that would run
out of memory, with its line of Python.

Usage: fsdp-plan replay FILE [options]

FILE is a memory snapshot, as torch.cuda.memory._dump_snapshot and fsdp-plan
rehearse --snapshot write it, or a text trace of lines such as
"alloc ID BYTES STREAM" and "free ID". A snapshot is read as data; nothing in it
is run. - is the standard input.

Examples:
  fsdp-plan replay snapshot.pickle --alloc-conf expandable_segments:True
  fsdp-plan replay snapshot.pickle --device-memory 16G
  fsdp-plan replay trace.txt --format trace

Exit codes: 0 it fits, 1 it runs out of memory, 2 the input is wrong.
)";

std::string spaced(std::string_view names) {
  std::string text;
  for (const char c : names) {
    text += c;
    if (c == ',') text += ' ';
  }
  return text;
}

/// A name in its column with a text beside it, or below it if the name is too long.
std::string row(const std::string& name, std::string_view text) {
  std::string line = "  " + name;
  if (text::display_width(line) + 2 > kHelpIndent) {
    line += "\n" + std::string(kHelpIndent, ' ');
  } else {
    line += std::string(static_cast<std::size_t>(kHelpIndent - text::display_width(line)), ' ');
  }
  bool first = true;
  std::string result;
  for (const std::string& part : text::wrap(text, kHelpWidth - kHelpIndent)) {
    result += (first ? line : std::string(kHelpIndent, ' ')) + part + "\n";
    first = false;
  }
  return result;
}

/// Each name of an option with its dashes.
std::vector<std::string> names_of(const OptionInfo& info) {
  std::vector<std::string> names(1);
  for (const char c : info.names) {
    if (c == ',') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  return names;
}

std::string words(std::string_view choices) {
  std::string text(choices);
  std::replace(text.begin(), text.end(), '|', ' ');
  return text;
}

std::string all_names() {
  std::string text;
  for (const OptionInfo& info : options()) {
    for (const std::string& name : names_of(info)) text += (text.empty() ? "" : " ") + name;
  }
  return text;
}

std::string command_names() {
  std::string text;
  for (const CommandInfo& info : commands()) text += (text.empty() ? "" : " ") + std::string(info.name);
  return text;
}

std::string bash_completions() {
  std::string cases;
  for (const OptionInfo& info : options()) {
    if (info.value.empty()) continue;
    std::string pattern;
    for (const std::string& name : names_of(info)) pattern += (pattern.empty() ? "" : "|") + name;
    const std::string reply = info.choices.empty()
                                  ? "compgen -f -- \"$current\""
                                  : fmt::format("compgen -W \"{}\" -- \"$current\"", words(info.choices));
    cases += fmt::format("    {}) COMPREPLY=($({})); return ;;\n", pattern, reply);
  }
  return fmt::format(R"(_fsdp_plan() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  case "$previous" in
{}  esac
  if [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "{}" -- "$current"))
  else
    COMPREPLY=($(compgen -W "{}" -- "$current") $(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _fsdp_plan fsdp-plan
)",
                     cases, all_names(), command_names());
}

std::string zsh_completions() {
  std::string specs;
  for (const OptionInfo& info : options()) {
    std::string text;  // _arguments interprets brackets and colons.
    for (const char c : info.help) {
      if (c == '[' || c == ']' || c == ':') text += '\\';
      text += c;
    }
    std::string value;
    if (!info.value.empty()) {
      value = fmt::format(":value:{}", info.choices.empty() ? "_files" : fmt::format("({})", words(info.choices)));
    }
    for (const std::string& name : names_of(info)) {
      specs += fmt::format("  {} \\\n", text::quoted_for_shell(fmt::format("*{}[{}]{}", name, text, value)));
    }
  }
  return fmt::format("#compdef fsdp-plan\n_arguments -S \\\n{}  '1:command or model:({})' '*:file:_files'\n", specs,
                     command_names());
}

std::string fish_completions() {
  std::string text;
  for (const CommandInfo& info : commands()) {
    text += fmt::format("complete -c fsdp-plan -n __fish_use_subcommand -a {} -d {}\n", info.name,
                        text::quoted_for_shell(info.summary));
  }
  for (const OptionInfo& info : options()) {
    for (const std::string& name : names_of(info)) {
      text += fmt::format("complete -c fsdp-plan {} {} -d {}", name.starts_with("--") ? "-l" : "-s",
                          name.substr(name.starts_with("--") ? 2 : 1), text::quoted_for_shell(info.help));
      if (!info.value.empty()) text += " -r";
      if (!info.choices.empty()) text += fmt::format(" -f -a {}", text::quoted_for_shell(words(info.choices)));
      text += "\n";
    }
  }
  return text;
}

/// Choices that a short help names of an option with more than twice as many.
constexpr std::size_t kMostNamed = 3;

/// "a, b or c" for "a|b|c"; in a short help, the first of many.
std::string listed(std::string_view choices, bool all) {
  const std::vector<std::string_view> parts = split(choices, '|');
  if (!all && parts.size() > 2 * kMostNamed) {
    return fmt::format("{} or {} others", fmt::join(parts.begin(), parts.begin() + kMostNamed, ", "),
                       parts.size() - kMostNamed);
  }
  std::string text(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    text += fmt::format("{}{}", i + 1 < parts.size() ? ", " : " or ", parts[i]);
  }
  return text;
}

/// Whether a sentence contains a word by itself: "bf16-mixed" does not contain "bf16".
bool says(std::string_view sentence, std::string_view word) {
  const auto is_part = [](char c) {
    return (std::isalnum(static_cast<unsigned char>(c)) != 0) || c == '-' || c == '_';
  };
  for (std::size_t at = sentence.find(word); at != std::string_view::npos; at = sentence.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_part(sentence[at - 1])) && (end == sentence.size() || !is_part(sentence[end]))) return true;
  }
  return false;
}

/// The help of an option, with its choices unless the sentence or the value names them all.
std::string help_of(const OptionInfo& info, const OptionWords& said, bool all) {
  const bool is_own_sentence = said.help.data() == info.help.data();
  const std::vector<std::string_view> choices = split(info.choices, '|');
  const bool says_all =
      std::all_of(choices.begin(), choices.end(), [&](std::string_view choice) { return says(said.help, choice); });
  const bool needs_choices = is_own_sentence && choices.size() > 1 && info.choices != info.value && !says_all;
  return needs_choices ? fmt::format("{}: {}", said.help, listed(info.choices, all)) : std::string(said.help);
}

/// The options of a command's short help, the model's first.
constexpr auto kEveryday = std::to_array<Option>({
    Option::Batch,        Option::Sequence,   Option::Precision,   Option::OptimizerName,    Option::GpuName,
    Option::Gpus,         Option::Nodes,      Option::Memory,      Option::ClusterFile,      Option::Checkpoint,
    Option::WorldSize,    Option::Offload,    Option::Steps,       Option::FindBatch,        Option::Apply,
    Option::CompareWith,  Option::Tolerance,  Option::BatchOption, Option::Batches,          Option::Device,
    Option::RunFolder,    Option::Weights,    Option::Tokens,      Option::CheckpointFolder, Option::AllocConf,
    Option::DeviceMemory, Option::ClockDtype, Option::ExportTo,    Option::Nearest,          Option::Output,
    Option::Json,         Option::Verbose,    Option::Quiet,
});
/// A command with at most this many options has no short help.
constexpr std::size_t kFew = 16;

bool is_everyday(const OptionInfo& info) {
  return std::find(kEveryday.begin(), kEveryday.end(), info.option) != kEveryday.end();
}

std::size_t options_taken_by(const CommandInfo& asked) {
  return static_cast<std::size_t>(std::count_if(
      options().begin(), options().end(), [&](const OptionInfo& info) { return info.commands.has(asked.command); }));
}

/// The options of a command, all or the everyday ones, under their headings.
std::string options_of(const CommandInfo& asked, bool all) {
  std::string text;
  for (const std::string_view group : option_groups()) {
    std::string rows;
    for (const OptionInfo& info : options()) {
      const OptionWords said = option_words(info, asked.command);
      if (!info.commands.has(asked.command) || said.group != group || (!all && !is_everyday(info))) continue;
      rows +=
          row(spaced(info.names) + (info.value.empty() ? "" : " " + std::string(info.value)), help_of(info, said, all));
    }
    if (!rows.empty()) text += fmt::format("\n{}:\n{}", group, rows);
  }
  return text;
}

std::string opening_of(const CommandInfo& asked) {
  switch (asked.command) {
    case Command::Capture:
      return std::string(kCaptureText);
    case Command::Rehearse:
      return std::string(kRehearseText);
    case Command::Execute:
      return std::string(kExecuteText);
    case Command::Replay:
      return std::string(kReplayText);
    default:
      return fmt::format("{}\n\nUsage: fsdp-plan {}{}{} [options]\n",
                         fmt::join(text::wrap(asked.summary, kHelpWidth), "\n"), asked.name,
                         asked.argument.empty() ? "" : " ", asked.argument);
  }
}

std::string_view choices_of(Option option) {
  return info_of(option).choices;
}

/// The help of the program on one screen: the most common decisions, in the order in which users make them.
std::string screen() {
  std::string commands_text;
  for (const CommandInfo& info : commands()) {
    if (info.command != Command::Plan)
      commands_text += fmt::format("{}{}", commands_text.empty() ? "" : " ", info.name);
  }
  const std::pair<std::string_view, std::vector<std::string>> parts[] = {
      {"Model",
       {"MODEL: a shipped one (fsdp-plan models), a Hugging Face folder or config.json, a file, or - (standard input)",
        "--batch N  --seq N  --global-batch N  --accumulate N  --recipe NAME",
        fmt::format("--precision {}", choices_of(Option::Precision)),
        "--optimizer adamw|adamw_8bit|adafactor|... (--help-all has all)"}},
      {"GPUs",
       {"--gpu NAME (fsdp-plan gpus), or --mem 24G: any with that memory",
        "--gpus N (of a node)   --nodes N   --cluster FILE|NAME",
        fmt::format("--objective {}   --at-most N   --price PRICES", choices_of(Option::Objective))}},
      {"Trainer",
       {fmt::format("--for {}", choices_of(Option::For)), fmt::format("--runtime {}", choices_of(Option::Runtime)),
        fmt::format("--activation-checkpointing {}   --offload {}", choices_of(Option::Checkpoint),
                    info_of(Option::Offload).value),
        fmt::format("--strategy {}", choices_of(Option::Strategy)), "Options left out are searched."}},
      {"Output", {"-o FILE   --json   --verbose   --quiet"}},
      {"Commands", {commands_text, "fsdp-plan COMMAND --help describes one."}}};
  std::string text =
      "fsdp-plan: predicts the memory, traffic and step time of training with PyTorch\n"
      "FSDP2, and finds the plan that fits your GPUs.\n\n"
      "  fsdp-plan llama3_1_8b --gpu H100 --gpus 8 --seq 8192 -o plan.json\n\n";
  for (const auto& [name, lines] : parts) {
    std::string label(name);
    for (const std::string& line : lines) {
      for (const std::string& part : text::wrap(line, kHelpWidth - static_cast<int>(kScreenIndent))) {
        text += label + std::string(kScreenIndent - label.size(), ' ') + part + "\n";
        label.clear();
      }
    }
  }
  return text +
         "\nfsdp-plan --help-all has every option. Exit codes: 0 the plan fits, 1 no plan\n"
         "fits, 2 the input is wrong, 3 the machine or a script failed.\n";
}

}  // namespace

std::string short_help() {
  return fmt::format(R"(fsdp-plan {}: predicts the memory, traffic and step time of training with
PyTorch FSDP2, and finds the plan that fits your GPUs.

  fsdp-plan qwen3_tts --gpus 4 --mem 16G

fsdp-plan --help shows the way, fsdp-plan models the models.
)",
                     kVersion);
}

std::string help(Command command) {
  const CommandInfo& asked = info_of(command);
  if (command == Command::Plan) return screen();
  const std::size_t count = options_taken_by(asked);
  if (count <= kFew) return long_help(command);
  return opening_of(asked) + options_of(asked, false) +
         fmt::format("\nfsdp-plan {} --help-all has all {} options.\n", asked.name, count);
}

std::string long_help(Command command) {
  const CommandInfo& asked = info_of(command);
  if (command != Command::Plan) return opening_of(asked) + options_of(asked, true);
  std::string text =
      "fsdp-plan: predicts the memory, traffic and step time of training with PyTorch\n"
      "FSDP2, and finds the plan that fits your GPUs.\n\n";
  text += kExamples;
  text += "\nUsage: fsdp-plan MODEL [options]\n       fsdp-plan COMMAND [options]\n\nCommands:\n";
  for (const CommandInfo& info : commands()) {
    text += row(std::string(info.name) + (info.argument.empty() ? "" : " " + std::string(info.argument)), info.summary);
  }
  text +=
      "\nMODEL is the name of a shipped model, a Hugging Face folder or config.json, a\n"
      "file, or - for the standard input.\n";
  text += options_of(asked, true);
  return text +
         "\nExit codes: 0 the plan fits, 1 no plan fits, 2 the input is wrong, 3 the machine\nor a script "
         "failed.\n";
}

Result<std::string> completions(const std::string& shell) {
  if (shell == "bash") return bash_completions();
  if (shell == "zsh") return zsh_completions();
  if (shell == "fish") return fish_completions();
  return failure("completions", fmt::format("There are no completions for \"{}\".", shell), "Write bash, zsh or fish.");
}

}  // namespace fsdp::command

#include "command/cli_help.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/version.h"
#include "text/shell_text.h"
#include "text/terminal.h"

namespace fsdp::planner {

namespace {

constexpr int kHelpWidth = 80;
constexpr int kHelpIndent = 30;

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

Exit codes: 0 it fits, 1 it runs out of memory or is outside --tolerance, 2 the
input is wrong, 3 the script failed, 130 it was interrupted.
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

On several machines, or under torchrun, mpirun or srun, start fsdp-exec PLAN
instead of a Python script.

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

/// A name in its column and a text beside it, below it where the name is too long.
std::string row(const std::string& name, std::string_view text) {
  std::string line = "  " + name;
  if (display_width(line) + 2 > kHelpIndent) {
    line += "\n" + std::string(kHelpIndent, ' ');
  } else {
    line += std::string(static_cast<std::size_t>(kHelpIndent - display_width(line)), ' ');
  }
  bool first = true;
  std::string result;
  for (const std::string& part : wrap(text, kHelpWidth - kHelpIndent)) {
    result += (first ? line : std::string(kHelpIndent, ' ')) + part + "\n";
    first = false;
  }
  return result;
}

/// Names of an option with its dashes, each.
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
    std::string text;  // Brackets and colons have a meaning in _arguments.
    for (const char c : info.help) {
      if (c == '[' || c == ']' || c == ':') text += '\\';
      text += c;
    }
    std::string value;
    if (!info.value.empty()) {
      value = fmt::format(":value:{}", info.choices.empty() ? "_files" : fmt::format("({})", words(info.choices)));
    }
    for (const std::string& name : names_of(info)) {
      specs += fmt::format("  {} \\\n", quoted_for_shell(fmt::format("*{}[{}]{}", name, text, value)));
    }
  }
  return fmt::format("#compdef fsdp-plan\n_arguments -S \\\n{}  '1:command or model:({})' '*:file:_files'\n", specs,
                     command_names());
}

std::string fish_completions() {
  std::string text;
  for (const CommandInfo& info : commands()) {
    text += fmt::format("complete -c fsdp-plan -n __fish_use_subcommand -a {} -d {}\n", info.name,
                        quoted_for_shell(info.summary));
  }
  for (const OptionInfo& info : options()) {
    for (const std::string& name : names_of(info)) {
      text += fmt::format("complete -c fsdp-plan {} {} -d {}", name.starts_with("--") ? "-l" : "-s",
                          name.substr(name.starts_with("--") ? 2 : 1), quoted_for_shell(info.help));
      if (!info.value.empty()) text += " -r";
      if (!info.choices.empty()) text += fmt::format(" -f -a {}", quoted_for_shell(words(info.choices)));
      text += "\n";
    }
  }
  return text;
}

/// The options that a command takes, by group in the order of the table.
std::string options_of(const CommandInfo& asked) {
  std::vector<std::pair<std::string_view, std::string>> groups;
  for (const OptionInfo& info : options()) {
    if (!info.commands.has(asked.command)) continue;
    const OptionWords said = words_of(info, asked.command);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == said.group; });
    if (group == groups.end()) group = groups.insert(groups.end(), {said.group, ""});
    std::string help(said.help);
    if (info.choices.find('|') != std::string_view::npos && info.choices != info.value) {
      const std::string list = words(info.choices);
      // Choices that the sentence names are not said twice.
      if (help.find(list.substr(0, list.find(' '))) == std::string::npos) help += ": " + list;
    }
    group->second += row(spaced(info.names) + (info.value.empty() ? "" : " " + std::string(info.value)), help);
  }
  std::string text;
  for (const auto& [name, rows] : groups) text += fmt::format("\n{}:\n{}", name, rows);
  return text;
}

}  // namespace

std::string short_help() {
  return fmt::format(R"(fsdp-plan {}: predicts the memory, traffic and step time of training with
PyTorch FSDP2, and finds the plan that fits your GPUs.

  fsdp-plan qwen3_tts --gpus 4 --mem 16G

fsdp-plan --help shows all commands and options, fsdp-plan models the models.
)",
                     kVersion);
}

std::string long_help(Command command) {
  const CommandInfo& asked = info_of(command);
  std::string text;
  if (command == Command::Plan) {
    text +=
        "fsdp-plan: predicts the memory, traffic and step time of training with PyTorch\n"
        "FSDP2, and finds the plan that fits your GPUs.\n\n";
    text += kExamples;
    text += "\nUsage: fsdp-plan MODEL [options]\n       fsdp-plan COMMAND [options]\n\nCommands:\n";
    for (const CommandInfo& info : commands()) {
      text +=
          row(std::string(info.name) + (info.argument.empty() ? "" : " " + std::string(info.argument)), info.summary);
    }
    text +=
        "\nMODEL is the name of a shipped model, a Hugging Face folder or config.json, a\n"
        "file, or - for the standard input.\n";
  } else if (command == Command::Capture) {
    text += kCaptureText;
  } else if (command == Command::Rehearse) {
    text += kRehearseText;
  } else if (command == Command::Execute) {
    text += kExecuteText;
  } else if (command == Command::Replay) {
    text += kReplayText;
  } else {
    text += fmt::format("{}\n\nUsage: fsdp-plan {}{}{} [options]\n", asked.summary, asked.name,
                        asked.argument.empty() ? "" : " ", asked.argument);
  }
  text += options_of(asked);
  if (command == Command::Plan) {
    text += "\nExit codes: 0 the plan fits, 1 no plan fits, 2 the input is wrong, 3 the machine\nor a script failed.\n";
  }
  return text;
}

Result<std::string> completions(const std::string& shell) {
  if (shell == "bash") return bash_completions();
  if (shell == "zsh") return zsh_completions();
  if (shell == "fish") return fish_completions();
  return failure("completions", fmt::format("There are no completions for \"{}\".", shell), "Write bash, zsh or fish.");
}

}  // namespace fsdp::planner

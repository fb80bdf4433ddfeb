#include "executor/options/options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/nearest.h"
#include "core/base/parse_units.h"
#include "executor/options/choice_option.h"
#include "executor/options/number_option.h"

namespace fsdp::executor {

namespace {

constexpr double kLeastTimeout = 1e-3;  // Seconds.
constexpr double kMostTimeout = 1e7;
constexpr EnumName<ReduceAlgorithm> kReduceAlgorithms[] = {{ReduceAlgorithm::Direct, "direct"},
                                                           {ReduceAlgorithm::Parity, "parity"}};
constexpr EnumTable<ReduceAlgorithm> kReduceAlgorithmTable{"order of sums", kReduceAlgorithms};

struct Texts {
  std::string device = "cpu";
  std::string memory;
  double timeout_seconds = 300;
  double heartbeat_seconds = 30;
  std::string nonfinite = "stop";
};

void describe_measuring(CLI::App& app, RunOptions& options) {
  app.add_option(
      "--measure", options.measure,
      "Write how long ops, copies and collectives take on this machine (rank 0); fsdp-plan calibrate reads it");
  app.add_flag("--measure-collectives", options.measures_collectives, "With --measure: time collectives by themselves")
      ->needs("--measure");
}

void describe(CLI::App& app, RunOptions& options, Texts& texts) {
  app.add_option("PLAN", options.plan, "Plan file, as fsdp-plan --output writes it")->required();
  app.add_option("--steps", options.steps, "Training steps in all, with those before a resumed checkpoint (3)")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--seed", options.seed, "Seed of weights and data (0)");
  describe_training_options(app, options.training);
  app.add_option(
      "--weights", options.weights,
      "Parameters: safetensors files, a folder of them, or a model.safetensors.index.json; else from the seed");
  app.add_option("--tokens", options.tokens,
                 "Data: files of token ids, raw or .npy, or one of samples, .safetensors; else from the seed");
  app.add_option("--labels", options.labels, "A file of labels for each of --tokens; -100 is ignored")
      ->needs("--tokens");
  app.add_option("--evaluate", options.evaluated, "Files of held-out token ids: print their loss, without dropout");
  app.add_option("--evaluate-every", options.evaluate_every, "Evaluate every N steps (only after the last step)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}))
      ->needs("--evaluate");
  app.add_option("--evaluate-samples", options.evaluate_samples, "Evaluate at most N samples (all)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->needs("--evaluate");
  app.add_option("--metrics", options.metrics, "Write a line of JSON for each step as it ends (rank 0)");
  app.add_option("--token-dtype", options.token_dtype,
                 "Dtype of raw token ids (uint16 for vocabularies up to 65536, else int32)")
      ->check(CLI::IsMember({"uint16", "int32", "uint32", "int64"}));
  app.add_option("--checkpoint-dir,--checkpoint", options.checkpoints.folder, "Write checkpoints into this folder");
  app.add_option("--checkpoint-every,--every", options.checkpoints.every,
                 "Write a checkpoint every N steps (only after the last step)")
      ->check(CLI::Range(1, 1'000'000'000))
      ->needs("--checkpoint-dir");
  app.add_option("--checkpoint-keep,--keep", options.checkpoints.keep, "Keep only the newest N checkpoints (all)")
      ->check(CLI::Range(1, 1'000'000))
      ->needs("--checkpoint-dir");
  app.add_option(
      "--resume", options.resume,
      "Resume from a checkpoint: its folder, or \"latest\" of --checkpoint-dir (from the beginning if there is none)");
  app.add_option("--measure-every", options.measure_every,
                 "Measure and print every Nth step; the device does not wait between them (1)")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--report", options.report,
                 "Write this rank's measurements as JSON; {rank} in the name is its number");
  app.add_option("--save-parameters", options.parameters, "Write all parameters at the end, as safetensors (rank 0)");
  app.add_option("--save-logits", options.logits,
                 "Write the inputs of the first step's cross entropies, as safetensors (rank 0)");
  app.add_option("--chrome-trace,--trace", options.trace,
                 "Write the last step as a Chrome trace, for Perfetto and HTA; {rank} as above");
  app.add_option("--allocation-trace", options.allocations, "Write every allocation of the last step");
  app.add_option("--workspaces", options.workspaces,
                 "Measure the scratch memory of matrix products and convolutions on this CPU, and write it (rank 0)");
  describe_measuring(app, options);
  add_choice(app, "--reduction,--reduce", options.reduce, kReduceAlgorithmTable,
             "Order of sums: direct, or parity with PyTorch on Gloo (direct)");
  app.add_option("--timeout", texts.timeout_seconds, "Seconds that a rank waits for another (300)")
      ->check(number_between(kLeastTimeout, kMostTimeout, true));
  app.add_option("--heartbeat", texts.heartbeat_seconds,
                 "With --device cuda: seconds without a heartbeat after which a rank counts as lost (30)")
      ->check(number_between(kLeastTimeout, kMostTimeout, true));
  app.add_option("--nonfinite-loss", texts.nonfinite, "Action if a loss is NaN or infinite: stop or continue (stop)")
      ->check(CLI::IsMember({"stop", "continue"}));
  app.add_option("--mem", texts.memory, "Limit on the bytes of this rank's tensors, such as 2G");
  app.add_option("--threads", options.threads, "Threads of a rank")->check(CLI::Range(1, 1024));
  app.add_option("--device", texts.device, "Where to compute: cpu, over Gloo; or cuda, over NCCL (cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--stand-in", options.stand_in_rank, "Run this rank alone; no bytes move between ranks");
  app.add_flag("--nccl-alone", options.nccl_alone,
               "With --stand-in: call NCCL anyway (works only with the stub's NCCL)")
      ->needs("--stand-in");
}

struct CommandLine {
  CLI::App app{"Trains a plan of fsdp-plan as one rank; an engine such as torchrun starts all of them.", "fsdp-exec"};
  RunOptions options;
  Texts texts;

  CommandLine() { describe(app, options, texts); }
  void read(std::vector<std::string> words) {
    app.allow_extras();
    std::reverse(words.begin(), words.end());  // CLI11 reads them from the back.
    app.parse(std::move(words));
  }
};

/// CLI11 writes "--lr: what is wrong", and for an option that needs another "--resume requires --checkpoint-dir".
Error error_of(const CLI::ParseError& error) {
  static constexpr std::string_view kNeeds = "requires ";
  const std::string text = error.what();
  const std::size_t end = std::min(text.find_first_of(": "), text.size());
  const std::string option = text.substr(0, end);
  const std::string rest = text.substr(std::min(text.find_first_not_of(": ", end), text.size()));
  const std::string hint = "See fsdp-exec --help.";
  if (!option.starts_with("--")) return {"fsdp-exec", text + ".", hint};
  if (rest.starts_with(kNeeds)) return {option, fmt::format("It needs {}.", rest.substr(kNeeds.size())), ""};
  return {option, rest + ".", hint};
}

/// Removes an option and its values from the words, so that other errors are found, too. False if it is not there.
bool take_out(const std::string& option, std::vector<std::string>& words) {
  const auto is_option = [&](const std::string& word) { return word == option || word.starts_with(option + "="); };
  const auto first = std::find_if(words.begin(), words.end(), is_option);
  if (first == words.end()) return false;
  const auto last =
      std::find_if(first + 1, words.end(), [](const std::string& word) { return word.starts_with("--"); });
  words.erase(first, last);
  return true;
}

Errors unknown_words(const CLI::App& app) {
  std::vector<std::string_view> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  const std::vector<std::string> extras = app.remaining();
  const bool has_options =
      std::any_of(extras.begin(), extras.end(), [](const std::string& word) { return word.starts_with("-"); });
  Errors errors;
  for (const std::string& word : extras) {
    if (!word.starts_with("-")) {  // Perhaps the value of an unknown option.
      if (!has_options) errors.push_back({"fsdp-exec", fmt::format("\"{}\" is one argument too many.", word), ""});
      continue;
    }
    const std::string name = word.substr(0, word.find('='));
    const auto nearest = nearest_name(name.substr(std::min(name.size(), name.find_first_not_of('-'))), names);
    errors.push_back({name, "There is no such option.",
                      nearest ? fmt::format("Did you mean --{}?", *nearest) : "See fsdp-exec --help."});
  }
  return errors;
}

/// Sentences about options that had another name in the previous version.
std::vector<std::string> notes_on(const std::vector<std::string>& words) {
  constexpr std::pair<std::string_view, std::string_view> kOldNames[] = {{"--checkpoint", "--checkpoint-dir"},
                                                                         {"--trace", "--chrome-trace"},
                                                                         {"--every", "--checkpoint-every"},
                                                                         {"--keep", "--checkpoint-keep"},
                                                                         {"--reduce", "--reduction"}};
  std::vector<std::string> notes;
  for (const std::string& word : words) {
    for (const auto& [before, now] : kOldNames) {
      if (std::string_view(word).substr(0, word.find('=')) != before) continue;
      notes.push_back(fmt::format("{} is now {}; the next version takes only that.", before, now));
    }
  }
  return notes;
}

/// Computes values that follow from the texts. Errors: options that contradict each other.
void settle(CommandLine& line, Errors& errors) {
  RunOptions& options = line.options;
  const Texts& texts = line.texts;
  options.stands_in = line.app.count("--stand-in") > 0;
  options.on_cuda = texts.device == "cuda";
  options.stops_at_nonfinite_loss = texts.nonfinite == "stop";
  if (options.on_cuda && !options.workspaces.empty()) {
    errors.push_back({"--workspaces", "It measures CPUs, not GPUs.", "Leave it out, or write --device cpu."});
  }
  if (!options.on_cuda && line.app.count("--heartbeat") > 0) {
    errors.push_back({"--heartbeat", "On CPU a lost rank is noticed by its connections.",
                      "Leave it out, or write --device cuda. --timeout is for ranks that hang."});
  }
  if (!options.measure.empty() && options.stands_in) {
    errors.push_back({"--measure", "A rank that runs alone measures no collectives.", "Leave --stand-in out."});
  }
  options.heartbeat = std::chrono::milliseconds(static_cast<std::int64_t>(texts.heartbeat_seconds * 1000));
  options.has_seed = line.app.count("--seed") > 0;
  note_given(line.app, options.training);
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(texts.timeout_seconds * 1000));
  if (texts.memory.empty()) return;
  const Result<Bytes> memory = parse_size(texts.memory, "--mem");
  if (memory) {
    options.memory = *memory;
  } else {
    errors.insert(errors.end(), memory.error().begin(), memory.error().end());
  }
}

}  // namespace

std::string usage() {
  return CommandLine().app.help();
}

Result<RunOptions> read_options(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const std::vector<std::string> notes = notes_on(words);
  Errors errors;
  for (;;) {
    CommandLine line;
    std::optional<Error> wrong;
    try {
      line.read(words);
    } catch (const CLI::CallForHelp&) {
      return tl::unexpected(Errors{});
    } catch (const CLI::RequiredError& error) {
      // The error may have disappeared with a removed option.
      if (errors.empty()) errors.push_back(error_of(error));
    } catch (const CLI::ParseError& error) {
      wrong = error_of(error);
      errors.push_back(*wrong);
    }
    if (wrong && take_out(wrong->where, words)) continue;
    const Errors unknown = unknown_words(line.app);
    errors.insert(errors.end(), unknown.begin(), unknown.end());
    if (!wrong) settle(line, errors);
    if (!errors.empty()) return tl::unexpected(std::move(errors));
    line.options.notes = notes;
    return line.options;
  }
}

}  // namespace fsdp::executor

#include "core/base/foreign_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>

namespace fsdp {

namespace {

constexpr std::string_view kWhatToDo =
    "Name the folder of a Hugging Face model or a shipped model (\"fsdp-plan models\"), or capture the script that "
    "trains it: fsdp-plan capture -o my.model.json -- python train.py.";
constexpr std::string_view kFolderInstead =
    "Name its folder, which has the model's config.json, as save_pretrained writes both.";
constexpr std::string_view kLauncherHint =
    "Plan for it: fsdp-plan MODEL --for accelerate. Its launcher can be rehearsed: fsdp-plan rehearse -- accelerate "
    "launch --config_file FILE train.py.";
constexpr std::string_view kTorchtitanHint =
    "Plan for it: fsdp-plan MODEL --for torchtitan. Its launcher can be rehearsed: fsdp-plan rehearse -- torchrun "
    "-m torchtitan.train --job.config_file FILE.";
constexpr std::string_view kTrainerHint =
    "Its command can be captured, or rehearsed: fsdp-plan capture -o my.model.json -- COMMAND.";

bool has_all(const JsonValue& object, std::initializer_list<std::string_view> keys) {
  return std::all_of(keys.begin(), keys.end(), [&](std::string_view key) { return object.find(key) != nullptr; });
}

bool has_any(const JsonValue& object, std::initializer_list<std::string_view> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](std::string_view key) { return object.find(key) != nullptr; });
}

/// Whether a line of the text starts with one of these, ignoring blanks.
bool has_line(std::string_view text, std::initializer_list<std::string_view> starts) {
  constexpr std::size_t kMost = 65536;
  text = text.substr(0, kMost);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    for (const std::string_view start : starts) {
      if (line.starts_with(start)) return true;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

/// A safetensors file starts with eight bytes of length, then the JSON of a header.
bool is_safetensors(std::string_view text) {
  if (text.size() < 10 || text[8] != '{') return false;
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(text[i]);
  return length >= 2 && length < (std::uint64_t{1} << 30);
}

struct OwnKind {
  WantedFile kind;
  bool is_it;
  std::string_view what;
  std::string_view use;
};

}  // namespace

std::optional<Error> recognize_text(std::string_view text, std::string_view name) {
  const auto error = [&](std::string_view what, std::string_view hint) {
    return Error{std::string(name), fmt::format("This is {}.", what), std::string(hint)};
  };
  if (is_safetensors(text)) return error("a file of tensors (safetensors), which has no model in it", kFolderInstead);
  if (text.starts_with("GGUF")) return error("a GGUF file, which has no model to train in it", kWhatToDo);
  if (text.starts_with("PK\x03\x04")) {
    return error("a zip archive, as torch.save writes it; tensors alone describe no model", kWhatToDo);
  }
  if (text.size() > 1 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5) {
    return error("a pickle", "For a memory snapshot, run fsdp-plan replay FILE; weights alone describe no model.");
  }
  if (has_line(text, {"compute_environment:", "distributed_type:", "fsdp_config:", "deepspeed_config:"})) {
    return error("a configuration of accelerate", kLauncherHint);
  }
  if (has_line(text, {"[parallelism]", "[activation_checkpoint]", "[job]"})) {
    return error("a configuration of torchtitan", kTorchtitanHint);
  }
  const bool is_named_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
  if (has_line(text, {"base_model:", "model_name_or_path:", "adapter:", "lora_r:", "finetuning_type:"})) {
    return error("a configuration of a trainer, such as axolotl, LLaMA-Factory or TRL", kTrainerHint);
  }
  if (has_line(text, {"import ", "from ", "class ", "def "})) {
    return error("a Python program", fmt::format("Capture it: fsdp-plan capture -o my.model.json -- python {}.", name));
  }
  if (is_named_yaml || name.ends_with(".toml")) {
    return error(is_named_yaml ? "a YAML file, which is not read here" : "a TOML file, which is not read here",
                 kWhatToDo);
  }
  return std::nullopt;
}

namespace {

/// An adapter's file also names its base model.
Error adapter(const JsonDocument& document) {
  const JsonValue* base = document.root.find("base_model_name_or_path");
  const bool has_base = base != nullptr && base->type == JsonType::String && !base->text.empty();
  return {document.name, "This is the configuration of an adapter (PEFT), which is added to a model.",
          fmt::format("Capture the script that trains it: fsdp-plan capture -o my.model.json -- python train.py{}.",
                      has_base ? fmt::format("; to train all of its base, name \"{}\"", base->text) : "")};
}

/// Files of Hugging Face and of DeepSpeed.
std::optional<Error> recognize_hugging_face(const JsonDocument& document) {
  const JsonValue& root = document.root;
  const auto error = [&](std::string_view what, std::string_view hint) {
    return Error{document.name, fmt::format("This is {}.", what), std::string(hint)};
  };
  if (has_any(root, {"peft_type"})) return adapter(document);
  if (has_any(root, {"_diffusers_version"})) {
    return error("a part of a pipeline of diffusers",
                 "Capture the script that trains it: fsdp-plan capture -o my.model.json -- python train.py.");
  }
  if (has_any(root, {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"})) {
    return error("a configuration of DeepSpeed",
                 "Plan for it: fsdp-plan MODEL --deepspeed FILE. Its launcher can be rehearsed: fsdp-plan rehearse -- "
                 "deepspeed train.py --deepspeed FILE.");
  }
  if (has_any(root, {"model_type", "architectures"})) {
    return error("a configuration of Hugging Face", "Name it as a model: fsdp-plan FILE --gpus 4 --mem 16G.");
  }
  if (has_all(root, {"weight_map"})) return error("an index of safetensors files", kFolderInstead);
  if (has_any(root, {"added_tokens", "tokenizer_class", "chat_template", "added_tokens_decoder"})) {
    return error("a tokenizer's file", kFolderInstead);
  }
  if (has_any(root, {"image_processor_type", "feature_extractor_type", "processor_class"})) {
    return error("the configuration of an input processor", kFolderInstead);
  }
  if (has_any(root, {"transformers_version", "max_new_tokens", "do_sample"})) {
    return error("a configuration of generation", kFolderInstead);
  }
  if (has_all(root, {"log_history", "global_step"})) {
    return error("the saved state of a Trainer", "Name the folder of the model itself.");
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> recognize_json(const JsonDocument& document, WantedFile wanted) {
  const JsonValue& root = document.root;
  if (root.type != JsonType::Object) return std::nullopt;
  const auto error = [&](std::string_view what, std::string_view hint) {
    return Error{document.name, fmt::format("This is {}.", what), std::string(hint)};
  };
  const bool is_model = has_all(root, {"modules"}) && !has_any(root, {"mesh", "gpus_per_node"});
  const bool is_report = has_all(root, {"kind", "memory", "traffic"});
  const bool is_plan = has_all(root, {"mesh", "units"}) && !is_report;
  const bool is_cluster = has_all(root, {"gpus_per_node", "gpu"}) || has_all(root, {"memory_bandwidth", "sms"});
  for (const OwnKind& own :
       {OwnKind{WantedFile::ModelSpec, is_model, "a model spec",
                "Plan it first: fsdp-plan FILE --gpus 4 --mem 16G -o plan.json."},
        OwnKind{WantedFile::Plan, is_plan, "a plan", "Say fsdp-plan simulate FILE; a new plan needs a model."},
        OwnKind{WantedFile::Cluster, is_cluster, "a cluster or a GPU", "Name it with --cluster."}}) {
    if (!own.is_it) continue;
    if (own.kind == wanted) return std::nullopt;
    return error(fmt::format("{}, not {}", own.what,
                             wanted == WantedFile::ModelSpec ? "a model spec"
                             : wanted == WantedFile::Plan    ? "a plan"
                                                             : "a cluster"),
                 own.use);
  }
  if (is_report) return error("a report", "Its plan is its member \"plan\"; -o writes a plan file.");
  if (root.find("format_version") != nullptr) return std::nullopt;
  return recognize_hugging_face(document);
}

bool is_about_foreign_file(const Error& error) {
  return error.what.starts_with("This is ");
}

}  // namespace fsdp

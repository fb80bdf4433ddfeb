#include "core/formats/hf_spec_text.h"

#include <fmt/format.h>

namespace fsdp {

std::string repeated_name(std::string_view stack, std::int64_t first, std::int64_t last) {
  return fmt::format("{}.{{{}..{}}}", stack, first, last);
}

HfSpecText::HfSpecText(std::string_view name, std::string_view source, Dtype dtype,
                       std::initializer_list<std::pair<std::string_view, std::int64_t>> dimensions)
    : dtype_(dtype) {
  json_.begin_object();
  json_.member("format_version", "1.0");
  json_.member("name", name);
  json_.member("source", source);
  json_.member("dtype", name_of(dtype));
  json_.key("dimensions");
  json_.begin_object(JsonLayout::OneLine);
  for (const auto& [key, value] : dimensions) json_.member(key, value);
  json_.end_object();
}

void HfSpecText::inputs(std::initializer_list<Input> inputs) {
  json_.key("inputs");
  json_.begin_object();
  for (const Input& input : inputs) {
    json_.key(input.name);
    json_.begin_object(JsonLayout::OneLine);
    json_.member("shape", input.shape);
    if (input.integers) json_.member("dtype", "int64");
    json_.end_object();
  }
  json_.end_object();
}

void HfSpecText::classes(const std::vector<std::pair<std::string, std::string>>& classes) {
  json_.key("classes");
  json_.begin_object(JsonLayout::OneLine);
  for (const auto& [module, class_name] : classes) json_.member(module, class_name);
  json_.end_object();
  json_.key("modules");
  json_.begin_array();
}

void HfSpecText::module(std::string_view name, std::string_view block, const Options& options,
                        std::string_view class_name) {
  json_.begin_object(JsonLayout::OneLine);
  json_.member("name", name);
  if (!class_name.empty()) json_.member("class", class_name);
  json_.member("block", block);
  if (options) options(json_);
  json_.end_object();
}

void HfSpecText::op(std::string_view name, std::string_view class_name, const Options& options) {
  json_.begin_object(JsonLayout::OneLine);
  json_.member("name", name);
  if (!class_name.empty()) json_.member("class", class_name);
  json_.key("ops");
  json_.begin_array(JsonLayout::OneLine);
  json_.begin_object(JsonLayout::OneLine);
  options(json_);
  json_.end_object();
  json_.end_array();
  json_.end_object();
}

void HfSpecText::end_modules() {
  json_.end_array();
}

void HfSpecText::registration(const std::vector<std::string>& names) {
  json_.member("registration", names);
}

void HfSpecText::tied(std::initializer_list<std::pair<std::string_view, std::string_view>> ties) {
  json_.key("tied");
  json_.begin_object(JsonLayout::OneLine);
  for (const auto& [alias, kept] : ties) json_.member(alias, kept);
  json_.end_object();
}

void HfSpecText::initial_values(std::string_view source, double std, const std::vector<Initial>& exceptions) {
  json_.key("initial_values");
  json_.begin_object();
  json_.member("source", source);
  json_.member("distribution", "normal");
  json_.member("std", std);
  if (!exceptions.empty()) {
    json_.key("exceptions");
    json_.begin_array();
    for (const Initial& each : exceptions) {
      json_.begin_object(JsonLayout::OneLine);
      json_.member("pattern", each.pattern);
      json_.member("distribution", each.distribution);
      if (each.distribution != "sinusoid") json_.member(each.distribution == "constant" ? "value" : "std", each.number);
      json_.end_object();
    }
    json_.end_array();
  }
  json_.end_object();
}

void HfSpecText::recipes(double weight_decay, bool clips_always) {
  const auto optimizer = [&](bool clips) {
    json_.key("optimizer");
    json_.begin_object(JsonLayout::OneLine);
    json_.member("kind", "adamw");
    json_.member("weight_decay", weight_decay);
    if (clips) json_.member("clip_grad_norm", 1.0);
    json_.end_object();
  };
  const auto begin = [&](std::string_view name, std::string_view description) {
    json_.key(name);
    json_.begin_object();
    json_.member("description", description);
  };
  json_.key("recipes");
  json_.begin_object();
  begin("finetune",
        "Fine-tuning of all parameters: fp32 parameters and optimizer states, bf16 compute, fp32 gradient reduction.");
  json_.member("parameter_dtype", "float32");
  json_.key("mixed_precision");
  json_.begin_object(JsonLayout::OneLine);
  json_.member("param_dtype", "bfloat16");
  json_.member("reduce_dtype", "float32");
  json_.end_object();
  optimizer(true);
  json_.end_object();
  if (dtype_ == Dtype::BFloat16) {
    begin("pure_bf16", "Everything in bf16, optimizer states too: half the memory, less accurate.");
  } else {
    begin("fp32", "Everything in fp32.");
    if (dtype_ != Dtype::Float32) json_.member("parameter_dtype", "float32");
  }
  optimizer(clips_always);
  json_.end_object();
  json_.end_object();
}

std::string HfSpecText::finish(const std::vector<std::string>& notes) && {
  if (!notes.empty()) json_.member("notes", notes);
  json_.end_object();
  return std::move(json_).take();
}

}  // namespace fsdp

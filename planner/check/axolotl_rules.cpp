// axolotl's own file. It drops a key that its schema lacks, warns in the middle of its log, and refuses some pairs
// before it loads the model.
//
// Sources: axolotl 0.19.0, utils/schemas/config.py (attn_decontaminates_packing), fsdp.py, validation.py
// (check_fsdp_version, check_fsdp2_w_8bit_optimizer, check_fsdp2_cpu_ram_efficient_loading_w_4bit,
// check_fsdp2_cpu_offload_pin_memory, check_sample_packing_without_attention), integrations/config.py (a plugin's keys
// are read if it is listed), loaders/model.py; accelerate 1.13.0, utils/dataclasses.py (set_auto_wrap_policy);
// transformers 5.16.1, trainer.py (create_accelerator_and_postprocess).

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/nearest.h"
#include "core/base/split.h"
#include "planner/check/rules.h"
#include "planner/jobs/axolotl_keys.h"

namespace fsdp::planner {

namespace {

constexpr std::int64_t kBytesOfWeight = 2;
constexpr std::string_view kDefaultOfFlash = "flash_attention_2";

bool is_axolotl(const CheckedRun& run) {
  return run.has(ConfigurationKind::Axolotl);
}

bool uses_axolotl_fsdp(const CheckedRun& run) {
  return run.axolotl("fsdp_config") || run.axolotl("fsdp");
}

Setting axolotl_version(const CheckedRun& run) {
  const Setting top = run.axolotl("fsdp_version");
  return top ? top : run.axolotl_fsdp("fsdp_version");
}

bool is_axolotl_fsdp2(const CheckedRun& run) {
  return uses_axolotl_fsdp(run) && axolotl_version(run).integer() == 2;
}

/// The keys of one object of the table.
std::vector<std::string_view> axolotl_names_below(std::string_view prefix) {
  std::vector<std::string_view> names;
  for (const JobKey& row : axolotl_keys()) {
    if (!row.name.starts_with(prefix)) continue;
    const std::string_view rest = row.name.substr(prefix.size());
    if (rest.find('.') == std::string_view::npos) names.push_back(rest);
  }
  return names;
}

void report_unknown(const JsonDocument& document, const JsonValue& object, std::string_view prefix, Reporter& report) {
  const std::vector<std::string_view> known = axolotl_names_below(prefix);
  for (const JsonMember& member : object.members) {
    const bool is_prefixed = !prefix.empty() && member.key.starts_with("fsdp_");
    const std::string_view name = std::string_view(member.key).substr(is_prefixed ? 5 : 0);
    const auto is_known = [&](std::string_view each) { return each == name || each == member.key; };
    if (std::any_of(known.begin(), known.end(), is_known) || name == "version") continue;
    const std::optional<std::string> nearest = nearest_name(std::string(name), known);
    Finding& found = report.add(nearest ? Severity::Error : Severity::Note, place_of(document, member),
                                fmt::format("axolotl drops the unknown key {} without a word.", member.key));
    if (nearest) {
      advise(found, fmt::format("Did you mean {}?", *nearest));
    } else {
      remove(found, {member.key, nullptr, nullptr});
    }
  }
}

std::vector<std::string> listed(const Setting& setting) {
  std::vector<std::string> names;
  if (!setting) return names;
  for (const JsonValue& element : setting.value->elements) names.push_back(element.text);
  const std::string text = setting.text();
  for (const std::string_view name : split(text, ',')) {
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

/// The attention by its name or by an older flag; the place that says so.
std::pair<std::string, Setting> axolotl_attention(const CheckedRun& run) {
  if (const Setting named = run.axolotl("attn_implementation")) return {named.text(), named};
  constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
      {"xformers_attention", "xformers"},       {"sage_attention", "sage"}, {"flex_attention", "flex_attention"},
      {"flash_attention", "flash_attention_2"}, {"sdp_attention", "sdpa"},  {"eager_attention", "eager"}};
  for (const auto& [key, name] : kFlags) {
    if (const Setting flag = run.axolotl(key); flag.is_on()) return {std::string(name), flag};
  }
  return {};
}

/// Kernels that keep packed documents apart (ATTN_IMPLS_SUPPORTING_PACKING), and those of PyTorch, by a mask.
bool keeps_apart(std::string_view attention) {
  constexpr std::string_view kKinds[] = {"flash_attention_2",
                                         "flash_attention_3",
                                         "flash_attention_4",
                                         "flash_attention_torch",
                                         "flex_attention",
                                         "xformers",
                                         "sage",
                                         "sdpa",
                                         "eager"};
  return attention.starts_with("kernels-community/") ||
         std::find(std::begin(kKinds), std::end(kKinds), attention) != std::end(kKinds);
}

}  // namespace

void find_unknown_axolotl_keys(const CheckedRun& run, Reporter& report) {
  // A plugin of the user's own may have keys of its own.
  for (const std::string& plugin : listed(run.axolotl("plugins"))) {
    if (!plugin.starts_with("axolotl.integrations.")) return;
  }
  for (const JsonDocument* document : run.layers_of(ConfigurationKind::Axolotl)) {
    report_unknown(*document, document->root, "", report);
    const JsonValue* fsdp = document->root.find("fsdp_config");
    if (fsdp != nullptr) report_unknown(*document, *fsdp, "fsdp_config.", report);
  }
}

void find_axolotl_version_1(const CheckedRun& run, Reporter& report) {
  if (!uses_axolotl_fsdp(run) || is_axolotl_fsdp2(run)) return;
  const Setting version = axolotl_version(run);
  const Setting section = run.axolotl("fsdp_config") ? run.axolotl("fsdp_config") : run.axolotl("fsdp");
  Finding& found = report.add(version ? Severity::Note : Severity::Warning, version ? version : section,
                              version ? "FSDP1 is deprecated, and axolotl warns of it."
                                      : "Without fsdp_version axolotl runs FSDP1, which it calls deprecated.");
  advise(found, "Write fsdp_version: 2 beside fsdp_config.");
}

void find_axolotl_keys_of_version_1(const CheckedRun& run, Reporter& report) {
  if (!is_axolotl_fsdp2(run)) return;
  // Keys of the schema that FSDP2 does not read, and those that axolotl's older examples have.
  for (const std::string_view key : {"use_orig_params", "sync_module_states", "sharding_strategy", "forward_prefetch",
                                     "backward_prefetch", "limit_all_gathers"}) {
    const Setting setting = run.axolotl_fsdp(key);
    const bool is_needed = key == "use_orig_params" && run.axolotl("optimizer").text().starts_with("q_galore");
    if (!setting || is_needed) continue;
    const bool loses =
        setting.upper() == "SHARD_GRAD_OP" || setting.upper() == "HYBRID_SHARD" || setting.upper() == "NO_SHARD";
    Finding& found = report.add(loses ? Severity::Error : Severity::Note, setting,
                                loses ? fmt::format("FSDP2 ignores {}: {} becomes FULL_SHARD.", key, setting.text())
                                      : fmt::format("FSDP2 ignores {}.", key));
    if (loses) {
      advise(found, setting.upper() == "SHARD_GRAD_OP" ? "Write reshard_after_forward: false in its place."
                                                       : "Write dp_replicate_size and dp_shard_size in its place.");
    } else {
      remove(found, setting);
    }
  }
}

void find_axolotl_wrapping(const CheckedRun& run, Reporter& report) {
  if (!uses_axolotl_fsdp(run) || run.axolotl_fsdp("auto_wrap_policy").is("SIZE_BASED_WRAP")) return;
  const Setting classes = run.axolotl_fsdp("transformer_layer_cls_to_wrap");
  const std::vector<std::string> names = listed(classes);
  if (names.empty()) {
    Finding& found =
        report.add(Severity::Warning, run.axolotl("fsdp_config") ? run.axolotl("fsdp_config") : run.axolotl("fsdp"),
                   "No class is named, so the whole model is one unit, and each GPU gathers all of it.");
    if (run.model) {
      costs(found, 2 * kBytesOfWeight * run.model->parameters,
            "of gathered parameters and gradients on each GPU, in bf16");
    }
    advise(found, "Add transformer_layer_cls_to_wrap with the class of the blocks to fsdp_config.");
    return;
  }
  if (!run.model) return;
  for (const std::string& name : names) {
    if (run.model->classes.contains(name)) continue;
    Finding& found =
        report.add(Severity::Error, classes,
                   fmt::format("{} has no module of class {}, and accelerate ends with \"Could not find the "
                               "transformer layer class\".",
                               run.model->name, name));
    std::vector<std::string> layers;
    for (const std::string& each : run.model->classes) {
      if (each.ends_with("Layer") || each.ends_with("Block")) layers.push_back(each);
    }
    if (layers.size() == 1) {
      replace(found, classes, layers.front());
    } else {
      advise(found, suggest_name(name, {layers.begin(), layers.end()}));
    }
  }
}

void find_axolotl_loading(const CheckedRun& run, Reporter& report) {
  if (!is_axolotl_fsdp2(run)) return;
  const Setting loading = run.axolotl_fsdp("cpu_ram_efficient_loading");
  if (run.axolotl("load_in_4bit").is_on()) {
    if (!loading.is_on()) return;
    replace(report.add(Severity::Error, loading,
                       "axolotl refuses it beside load_in_4bit under FSDP2: one rank alone would have packed weights."),
            loading, "false");
    return;
  }
  if (loading.is_on()) return;
  Finding& found = report.add(Severity::Warning, loading ? loading : run.axolotl("fsdp_config"),
                              "Each process loads the whole model.");
  if (run.model) costs(found, kBytesOfWeight * run.model->parameters, "of host memory for each process");
  if (loading) {
    replace(found, loading, "true");
  } else {
    advise(found, "Add cpu_ram_efficient_loading: true to fsdp_config.");
  }
}

void find_axolotl_packing(const CheckedRun& run, Reporter& report) {
  const Setting packs = run.axolotl("sample_packing");
  if (!packs.is_on()) return;
  const auto [attention, at] = axolotl_attention(run);
  if (keeps_apart(attention)) return;
  Finding& found = report.add(
      Severity::Error, at ? at : packs,
      at ? fmt::format("{} does not keep packed documents apart: each attends to those before it.", attention)
         : std::string("Without attn_implementation packed documents attend to those before them."));
  if (at && at.key == "attn_implementation") {
    replace(found, at, std::string(kDefaultOfFlash));
  } else {
    advise(found, fmt::format("Write attn_implementation: {}.", kDefaultOfFlash));
  }
}

void find_axolotl_checkpoints_twice(const CheckedRun& run, Reporter& report) {
  const Setting of_fsdp = run.axolotl_fsdp("activation_checkpointing");
  const Setting own = run.axolotl("gradient_checkpointing");
  if (!uses_axolotl_fsdp(run) || !of_fsdp.is_on() || !own || own.flag() == false) return;
  replace(report.add(Severity::Error, of_fsdp,
                     "The Trainer refuses activation_checkpointing of fsdp_config beside gradient_checkpointing."),
          of_fsdp, "false");
}

void find_axolotl_optimizers(const CheckedRun& run, Reporter& report) {
  const Setting optimizer = run.axolotl("optimizer");
  if (!is_axolotl_fsdp2(run) || !(optimizer.is("adamw_8bit") || optimizer.is("adamw_bnb_8bit"))) return;
  replace(report.add(Severity::Error, optimizer,
                     fmt::format("axolotl refuses {} under FSDP2: the kernels of bitsandbytes take no DTensor.",
                                 optimizer.text())),
          optimizer, "adamw_torch_8bit");
}

void find_axolotl_plugins(const CheckedRun& run, Reporter& report) {
  if (!is_axolotl(run)) return;
  constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
      {"liger_rope", "axolotl.integrations.liger.LigerPlugin"},
      {"liger_rms_norm", "axolotl.integrations.liger.LigerPlugin"},
      {"liger_glu_activation", "axolotl.integrations.liger.LigerPlugin"},
      {"liger_swiglu", "axolotl.integrations.liger.LigerPlugin"},
      {"liger_layer_norm", "axolotl.integrations.liger.LigerPlugin"},
      {"liger_fused_linear_cross_entropy", "axolotl.integrations.liger.LigerPlugin"},
      {"liger_cross_entropy", "axolotl.integrations.liger.LigerPlugin"},
      {"cut_cross_entropy", "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"}};
  const std::vector<std::string> plugins = listed(run.axolotl("plugins"));
  for (const auto& [key, plugin] : kKeys) {
    const Setting setting = run.axolotl(key);
    if (!setting.is_on() || std::find(plugins.begin(), plugins.end(), plugin) != plugins.end()) continue;
    advise(report.add(Severity::Error, setting, fmt::format("{} has no effect without its plugin.", key)),
           fmt::format("Add {} to plugins.", plugin));
  }
}

void find_axolotl_pinned_memory(const CheckedRun& run, Reporter& report) {
  const Setting pins = run.axolotl_fsdp("cpu_offload_pin_memory");
  if (!uses_axolotl_fsdp(run) || pins.flag() != false) return;
  if (is_axolotl_fsdp2(run) && run.axolotl_fsdp("offload_params").is_on()) return;
  remove(report.add(Severity::Error, pins,
                    "axolotl refuses cpu_offload_pin_memory: false without offload_params under fsdp_version: 2."),
         pins);
}

}  // namespace fsdp::planner

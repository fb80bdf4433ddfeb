#include "core/plan/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/base/nearest.h"
#include "core/base/parse_units.h"
#include "core/base/split.h"

namespace fsdp {

namespace {

constexpr std::array<std::string_view, 7> kKeys = {"r",           "alpha", "targets", "dropout", "modules_to_save",
                                                   "input_grads", "base"};
constexpr std::string_view kForm = "Write it as r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05, or just 16.";

void read_key(std::string_view key, std::string_view value, std::string_view where, LoraOptions& lora, Errors& errors) {
  const auto fail = [&](std::string_view allowed) {
    errors.push_back(
        {std::string(where), fmt::format("\"{}={}\" is not {}.", key, value, allowed), std::string(kForm)});
  };
  if (key == "targets" || key == "modules_to_save") {
    std::vector<std::string>& names = key == "targets" ? lora.targets : lora.modules_to_save;
    names.clear();
    for (const std::string_view name : split(value, '+')) names.emplace_back(name);
  } else if (key == "r") {
    const auto r = parse_integer(value);
    if (!r) return fail("a whole number");
    lora.r = *r;
  } else if (key == "input_grads") {
    if (value != "yes" && value != "no") return fail("yes or no");
    lora.input_grads = value == "yes";
  } else if (key == "base") {
    if (value != "float32" && value != "checkpoint") return fail("float32 or checkpoint");
    lora.float32_base = value == "float32";
  } else {
    const auto number = parse_number(value);
    if (!number) return fail("a number");
    (key == "alpha" ? lora.alpha : lora.dropout) = *number;
  }
}

bool has_number(std::string_view target) {
  const std::vector<std::string_view> parts = split(target, '.');
  return std::any_of(parts.begin(), parts.end(), [](std::string_view part) { return parse_integer(part).has_value(); });
}

}  // namespace

bool is_named(std::string_view module, std::string_view target) {
  if (target.starts_with('*')) return module.ends_with(target.substr(1));
  if (!module.ends_with(target)) return false;
  return module.size() == target.size() || module[module.size() - target.size() - 1] == '.';
}

bool targets_all(const LoraOptions& lora) {
  return lora.targets.size() == 1 && lora.targets.front() == kAllLinear;
}

Errors check_lora(const LoraOptions& lora, std::string_view where) {
  Errors errors;
  const auto fail = [&](std::string what, std::string hint = {}) {
    errors.push_back({std::string(where), std::move(what), std::move(hint)});
  };
  if (lora.r < 1 || lora.r > kLargestRank) fail(fmt::format("The rank r is {}.", lora.r), "It is at least 1.");
  if (!(lora.alpha > 0)) fail(fmt::format("alpha is {}.", lora.alpha), "It is above 0.");
  if (!(lora.dropout >= 0 && lora.dropout < 1)) {
    fail(fmt::format("dropout is {}.", lora.dropout), "It is a probability below 1, such as 0.05.");
  }
  if (lora.targets.empty()) fail("There are no targets.", "Name linear layers, or write all-linear.");
  for (const std::vector<std::string>* names : {&lora.targets, &lora.modules_to_save}) {
    for (const std::string& name : *names) {
      if (name.empty()) {
        fail("A target has no name.", "Write targets=q_proj+v_proj.");
      } else if (name == kAllLinear && (names != &lora.targets || names->size() > 1)) {
        fail("all-linear is one of several names.", "Write targets=all-linear alone.");
      } else if (has_number(name)) {
        fail(fmt::format("\"{}\" names one of several equal blocks.", name),
             "Adapters are predicted in all blocks of a row: leave the number out.");
      }
    }
  }
  return errors;
}

Result<LoraOptions> parse_lora(std::string_view text, std::string_view where) {
  LoraOptions lora;
  Errors errors;
  if (const auto r = parse_integer(text)) {
    lora.r = *r;
  } else {
    for (const std::string_view part : split(text, ',')) {
      const std::size_t equals = std::min(part.find('='), part.size());
      const std::string_view key = part.substr(0, equals);
      if (equals == part.size()) {
        errors.push_back(
            {std::string(where), fmt::format("\"{}\" is not a key and a value.", part), std::string(kForm)});
      } else if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
        errors.push_back({std::string(where), fmt::format("Unknown key \"{}\".", key), suggest_name(key, kKeys)});
      } else {
        read_key(key, part.substr(equals + 1), where, lora, errors);
      }
    }
  }
  if (errors.empty()) errors = check_lora(lora, where);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return lora;
}

std::string to_text(const LoraOptions& lora) {
  std::string text = fmt::format("r={},alpha={},targets={},dropout={}", lora.r, lora.alpha,
                                 fmt::join(lora.targets, "+"), lora.dropout);
  if (!lora.modules_to_save.empty()) text += fmt::format(",modules_to_save={}", fmt::join(lora.modules_to_save, "+"));
  if (lora.input_grads) text += ",input_grads=yes";
  if (lora.float32_base) text += ",base=float32";
  return text;
}

std::string sentence_of(const LoraOptions& lora) {
  const std::vector<std::string_view> targets(lora.targets.begin(), lora.targets.end());
  std::string text =
      fmt::format("LoRA r={} on {}", lora.r, targets_all(lora) ? "all linear layers" : join_names(targets));
  const std::vector<std::string_view> saved(lora.modules_to_save.begin(), lora.modules_to_save.end());
  if (!saved.empty()) text += fmt::format(", {} trained", join_names(saved));
  return lora.float32_base ? text + ", base in fp32" : text;
}

std::string python_of(const LoraOptions& lora) {
  const auto list = [](const std::vector<std::string>& names) {
    return fmt::format("[\"{}\"]", fmt::join(names, "\", \""));
  };
  std::string text = fmt::format("LoraConfig(r={}, lora_alpha={}, target_modules={}", lora.r, lora.alpha,
                                 targets_all(lora) ? fmt::format("\"{}\"", kAllLinear) : list(lora.targets));
  if (lora.dropout > 0) text += fmt::format(", lora_dropout={}", lora.dropout);
  if (!lora.modules_to_save.empty()) text += fmt::format(", modules_to_save={}", list(lora.modules_to_save));
  return text + ")";
}

}  // namespace fsdp

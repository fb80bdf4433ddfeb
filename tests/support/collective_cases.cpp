#include "tests/support/collective_cases.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "core/base/name_pattern.h"
#include "tests/support/collective_models.h"

namespace fsdp {

namespace {

[[noreturn]] void give_up(const std::string& line) {
  std::cerr << "not understood: " << line << "\n";
  std::abort();
}

Words words_in(std::istringstream& rest) {
  Words words;
  for (std::string word; rest >> word;) {
    const auto equals = word.find('=');
    words[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return words;
}

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> items;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) items.push_back(item);
  return items;
}

ReshardAfterForward reshard_of(const std::string& text) {
  using Kind = ReshardAfterForward::Kind;
  if (text == "true") return {Kind::Always, 0};
  if (text == "false") return {Kind::Never, 0};
  return {Kind::Smaller, std::stoll(text)};
}

/// Python's fnmatch over parameter names.
bool is_meant(const std::string& patterns, const std::string& name) {
  for (const std::string& pattern : list_of(patterns)) {
    if (matches_exactly(pattern, name)) return true;
  }
  return false;
}

void choose_trainable(Model& model, const std::string& trainable, const std::string& frozen) {
  for (Parameter& parameter : model.parameters) {
    const bool left_out = !trainable.empty() && !is_meant(trainable, parameter.name);
    parameter.trainable = !left_out && !is_meant(frozen, parameter.name);
  }
  derive_gradient_flow(model);
}

/// Everything of the plan but its units.
Plan plan_of(const Words& words) {
  Plan plan;
  plan.sync_every_micro_batch = false;
  for (const auto& [key, value] : words) {
    if (key == "replicate") {
      plan.mesh.dp_replicate() = std::stoll(value);
    } else if (key == "shard") {
      plan.mesh.dp_shard() = std::stoll(value);
    } else if (key == "param") {
      plan.mixed_precision.param_dtype = parse_dtype(value);
    } else if (key == "reduce") {
      plan.mixed_precision.reduce_dtype = parse_dtype(value);
    } else if (key == "accumulation") {
      plan.accumulation = std::stoll(value);
    } else if (key == "sync") {
      plan.sync_every_micro_batch = value == "always";
    } else if (key == "clip") {
      plan.optimizer.clip_grad_norm = std::stod(value);
    } else if (key == "cpu_offload") {
      plan.cpu_offload = value == "1";
    } else if (key == "forward_prefetch") {
      plan.forward_prefetch = std::stoll(value);
    } else if (key == "backward_prefetch") {
      plan.backward_prefetch = std::stoll(value);
    } else if (key != "dtype" && key != "reshard" && key != "root_reshard" && key != "checkpoint" && key != "frozen" &&
               key != "trainable") {
      give_up(key);
    }
  }
  return plan;
}

class Reader {
 public:
  std::vector<CollectiveCase> read(std::istream& file) {
    for (std::string line; std::getline(file, line);) {
      std::istringstream rest(line);
      std::string what;
      rest >> what;
      if (what == "case") {
        finish();
        cases_.emplace_back();
        rest >> cases_.back().name;
      } else if (what == "model") {
        rest >> kind_;
        sizes_ = words_in(rest);
      } else if (what == "plan") {
        settings_ = words_in(rest);
        cases_.back().plan = plan_of(settings_);
      } else if (what == "unit") {
        Unit unit{.modules = {}, .reshard_after_forward = reshard("reshard")};
        for (std::string module; rest >> module;) unit.modules.push_back(module);
        cases_.back().plan.units.push_back(std::move(unit));
      } else if (!what.empty()) {
        cases_.back().collectives.push_back(collective(what, rest, line));
      }
    }
    finish();
    return std::move(cases_);
  }

 private:
  std::string setting(const std::string& key) const {
    const auto found = settings_.find(key);
    return found == settings_.end() ? "" : found->second;
  }

  ReshardAfterForward reshard(const std::string& key) const {
    const std::string text = setting(key);
    return text.empty() ? ReshardAfterForward{} : reshard_of(text);
  }

  static SeenCollective collective(const std::string& kind, std::istringstream& rest, const std::string& line) {
    SeenCollective seen{.kind = kind};
    std::string phase;
    if (!(rest >> phase >> seen.unit >> seen.elements >> seen.dtype >> seen.group_size)) give_up(line);
    seen.phase = phase == "fwd" ? "forward" : phase == "bwd" ? "backward" : "optimizer";
    if (seen.unit == "(root)") seen.unit = "";
    seen.dtype = name_of(parse_dtype(seen.dtype).value());
    return seen;
  }

  void finish() {
    if (cases_.empty()) return;
    CollectiveCase& made = cases_.back();
    const std::string dtype = setting("dtype");
    made.model = collective_model(kind_, sizes_, dtype.empty() ? Dtype::Float32 : parse_dtype(dtype).value());
    choose_trainable(made.model, setting("trainable"), setting("frozen"));
    made.plan.units.push_back({{""}, reshard("root_reshard")});
    if (setting("checkpoint") != "full") return;
    for (const Call& call : made.model.calls) {
      if (!call.repeated) continue;
      const std::string& name = made.model.modules[call.module].name;
      made.plan.checkpointing.entries.push_back({.module = name, .mode = CheckpointMode::Full});
    }
  }

  std::vector<CollectiveCase> cases_;
  std::string kind_;
  Words sizes_;
  Words settings_;
};

}  // namespace

std::string to_string(const SeenCollective& seen) {
  return fmt::format("{} {} \"{}\" {} {} over {}", seen.phase, seen.kind, seen.unit, seen.elements, seen.dtype,
                     seen.group_size);
}

std::vector<CollectiveCase> read_collective_cases(const std::string& path) {
  std::ifstream file(path);
  return Reader().read(file);
}

}  // namespace fsdp

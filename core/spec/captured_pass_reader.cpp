// Reads the passes of a captured step with several backwards, such as a GAN's.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/limits.h"
#include "core/spec/captured_block_reader.h"

namespace fsdp::captured_reader {

namespace {

/// Modules below the root, by their names.
void read_models(ObjectReader& object, std::string_view key, const Model& model, std::vector<int>& out) {
  std::vector<std::string> names;
  object.required(key, names);
  for (const std::string& name : names) {
    const std::vector<int>& roots = model.modules.front().children;
    const auto found =
        std::find_if(roots.begin(), roots.end(), [&](int root) { return model.modules[root].name == name; });
    if (found == roots.end()) {
      object.fail(key, fmt::format("\"{}\" is no module below the root.", name), std::string(kAgain));
      return;
    }
    out.push_back(*found);
  }
}

/// A step of several backwards: for each the calls of its forward, the loss, and the models that step after it, one
/// list for each optimizer.
class PassReader {
 public:
  PassReader(Model& model, const std::vector<bool>& is_made, JsonErrors& errors)
      : model_(model), is_made_(is_made), errors_(errors) {}

  void read(const JsonValue& passes, const JsonValue* clearings) {
    if (!expect_type(passes, JsonType::Array, "a list", errors_)) return;
    if (passes.elements.empty()) errors_.add(passes, "A step has at least one backward.", std::string(kAgain));
    for (const JsonValue& item : passes.elements) read_pass(item);
    if (clearings != nullptr && expect_type(*clearings, JsonType::Array, "a list", errors_)) {
      for (const JsonValue& item : clearings->elements) read_clearing(item);
    }
    if (errors_.empty()) check(passes);
  }

 private:
  void read_pass(const JsonValue& value) {
    Pass pass;
    ObjectReader object(value, errors_);
    const auto num_calls = static_cast<std::int64_t>(model_.calls.size());
    const std::int64_t first = model_.passes.empty() ? 0 : model_.passes.back().call_end;
    object.required("calls", pass.call_end, IntegerRange{first, num_calls});
    object.required("loss", pass.loss, IntegerRange{0, static_cast<std::int64_t>(model_.values.size()) - 1});
    read_models(object, "gradients", model_, pass.gradients);
    for_each(object, "optimizers", errors_, [&](const JsonValue& item) {
      ObjectReader optimizer(item, errors_);
      std::vector<int> models;
      read_models(optimizer, "models", model_, models);
      if (optimizer.finish()) pass.optimizers.push_back(number_of(models));
    });
    if (!object.finish()) return;
    if (!is_made_[pass.loss]) object.fail("loss", "No call makes it.", std::string(kAgain));
    if (num_elements(model_.values[pass.loss].shape) != 1) object.fail("loss", "A loss is a scalar.");
    model_.passes.push_back(std::move(pass));
  }

  int number_of(const std::vector<int>& models) {
    const auto found = std::find(model_.optimizers.begin(), model_.optimizers.end(), models);
    const auto number = static_cast<int>(found - model_.optimizers.begin());
    if (found == model_.optimizers.end()) model_.optimizers.push_back(models);
    return number;
  }

  void read_clearing(const JsonValue& value) {
    Clearing clearing;
    ObjectReader object(value, errors_);
    object.required("pass", clearing.pass, IntegerRange{0, static_cast<std::int64_t>(model_.passes.size())});
    object.required("call", clearing.call, IntegerRange{0, static_cast<std::int64_t>(model_.calls.size())});
    read_models(object, "models", model_, clearing.modules);
    if (!object.finish()) return;
    const auto place = [](const Clearing& of) { return std::pair(of.pass, of.call); };
    if (!model_.clearings.empty() && place(clearing) < place(model_.clearings.back())) {
      object.fail("call", "It is before that of the clearing before.", std::string(kAgain));
    }
    model_.clearings.push_back(std::move(clearing));
  }

  void check(const JsonValue& passes) {
    if (model_.passes.back().call_end != static_cast<int>(model_.calls.size())) {
      errors_.add(passes, "The passes do not have all calls.", std::string(kAgain));
    }
    for (std::size_t c = 0; c < model_.calls.size(); ++c) {
      const int backward = model_.calls[c].backward;
      if (backward < 0) continue;
      const bool is_there = backward < static_cast<int>(model_.passes.size());
      if (!is_there || static_cast<int>(c) >= model_.passes[backward].call_end) {
        errors_.add(passes, fmt::format("Call {} has a backward before its forward, or none.", c), std::string(kAgain));
        return;
      }
    }
    std::vector<int> stepped;
    for (const std::vector<int>& models : model_.optimizers)
      stepped.insert(stepped.end(), models.begin(), models.end());
    std::sort(stepped.begin(), stepped.end());
    if (std::adjacent_find(stepped.begin(), stepped.end()) != stepped.end()) {
      errors_.add(passes, "Two optimizers step one model.", std::string(kAgain));
    }
    for (const int root : model_.modules.front().children) {
      if (std::binary_search(stepped.begin(), stepped.end(), root) && model_.modules[root].called) continue;
      errors_.add(passes, fmt::format("No optimizer steps \"{}\", or nothing calls it.", model_.modules[root].name),
                  std::string(kAgain));
    }
    for (const Call& call : model_.calls) check_gradients(call, passes);
    if (!model_.modules.front().parameters.empty()) {
      errors_.add(passes, "The module that holds the models has parameters of its own.", std::string(kAgain));
    }
  }

  // Every gradient of a parameter on a tape needs a reduction that includes it.
  void check_gradients(const Call& call, const JsonValue& passes) {
    if (call.backward < 0) return;
    for (const RecordedTape& tape : model_.blocks[call.block].recorded->tapes) {
      for (const auto& events : tape.backward) {
        for (const RecordedEvent& event : events) {
          if (event.kind != RecordedEvent::Kind::ParamGrad) continue;
          const Parameter& parameter = model_.parameters[call.parameters[event.index]];
          if (gives_gradients(model_, call.backward, parameter.module)) continue;
          errors_.add(
              passes,
              fmt::format("A call makes a gradient of \"{}\" in a backward without any of its model.", parameter.name),
              std::string(kAgain));
          return;
        }
      }
    }
  }

  Model& model_;
  const std::vector<bool>& is_made_;
  JsonErrors& errors_;
};

}  // namespace

void read_passes(Model& model, const std::vector<bool>& is_made, const JsonValue& passes, const JsonValue* clearings,
                 JsonErrors& errors) {
  PassReader(model, is_made, errors).read(passes, clearings);
}

}  // namespace fsdp::captured_reader

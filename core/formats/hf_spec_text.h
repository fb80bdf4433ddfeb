#pragma once

// Builds the model spec of a config.json of Hugging Face, as text for the reader of specs.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json_writer.h"

namespace fsdp {

/// Writes the parts of a spec in order: the constructor, `inputs`, `classes`, `module`s, `end_modules`, optional parts,
/// `finish`.
class HfSpecText {
 public:
  using Options = std::function<void(JsonWriter&)>;
  struct Input {
    std::string_view name;
    std::vector<std::string> shape;  ///< Dimensions or numbers.
    bool integers = true;            ///< int64; otherwise the precision of the activations.
  };

  HfSpecText(std::string_view name, std::string_view source, Dtype dtype,
             std::initializer_list<std::pair<std::string_view, std::int64_t>> dimensions);

  void inputs(std::initializer_list<Input> inputs);
  /// Writes the classes and begins the modules.
  void classes(const std::vector<std::pair<std::string, std::string>>& classes);
  void module(std::string_view name, std::string_view block, const Options& options = {},
              std::string_view class_name = {});
  /// A module of one op.
  void op(std::string_view name, std::string_view class_name, const Options& options);
  void end_modules();
  void registration(const std::vector<std::string>& names);
  void tied(std::initializer_list<std::pair<std::string_view, std::string_view>> ties);
  /// Initial values of parameters: normal with `std`, and exceptions.
  struct Initial {
    std::string pattern;
    std::string_view distribution;  ///< "normal", "uniform" (`number` is its std), "constant" (its value), "sinusoid".
    double number = 0;
  };
  void initial_values(std::string_view source, double std, const std::vector<Initial>& exceptions = {});
  void tokens_per_step(std::string_view formula) { json_.member("tokens_per_step", formula); }
  /// The training recipes of shipped specs with this dtype.
  void recipes(double weight_decay, bool clips_always);
  std::string finish(const std::vector<std::string>& notes) &&;

 private:
  Dtype dtype_;
  JsonWriter json_;
};

/// "key": {"name": value}, on one line.
template <class T>
void nested_member(JsonWriter& json, std::string_view key, std::string_view name, const T& value) {
  json.key(key);
  json.begin_object(JsonLayout::OneLine);
  json.member(name, value);
  json.end_object();
}

/// "model.layers.{0..31}"; "model.layers.{3..3}" for one.
std::string repeated_name(std::string_view stack, std::int64_t first, std::int64_t last);

}  // namespace fsdp

#pragma once

// The keys of a configuration: which are read, which do not matter, and which are predicted with one value only.
//
// A program's reader has a table of its keys. The table decides about every key, so that nothing is ignored in silence:
// a key that it lacks is an error.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"

namespace fsdp::planner {

enum class KeyMeaning : std::uint8_t {
  Free,     ///< Changes neither memory nor collectives nor the time of a step: names, data, logging.
  Read,     ///< The reader takes it.
  Usual,    ///< Predicted with one value only, or unset.
  Ignored,  ///< The program itself ignores it.
};

struct JobKey {
  /// "fsdp_config.fsdp_version": a member of an object after a dot. The object itself needs no row. "profiler.*": every
  /// other member of the object, and all below it.
  std::string_view name;
  KeyMeaning meaning = KeyMeaning::Free;
  /// For Usual: the value that is predicted, as a text; values that switch nothing on are, too.
  std::string_view usual = {};
  /// For Usual: what another value asks for, "tensor parallelism". For Ignored: why it is.
  std::string_view what = {};
};

/// The member of an object by its key; nullptr if it is missing or null.
const JsonValue* find_in(const JsonValue& root, std::string_view key);

/// Which values count: those of a line over those of a file.
struct JobLayer {
  const JsonDocument* document = nullptr;
  std::span<const JobKey> table;
};

/// The values of a configuration by key, from the first layer that has it. A key whose value is null is unset. Reads as
/// Python's configuration classes do: "2e-5" and "16" are numbers, "true" is true.
class JobKeys {
 public:
  /// Checks every key of every layer. `instead`: the hint of what is not predicted. Errors go to `errors`. REQUIRES:
  /// the documents and `errors` outlive it.
  JobKeys(std::vector<JobLayer> layers, std::string instead, Errors& errors);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// "sft.yaml:12:1: /lora_r"; the last layer's file if the key is unset.
  std::string where(std::string_view key) const;

  // Values of the right type. Another type is an error, and the value then counts as unset.
  std::optional<bool> flag(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t least = 1);
  std::optional<double> number(std::string_view key);
  std::optional<std::string> word(std::string_view key);
  /// The value as its program would print it, "true" or "2"; empty if it is unset, a list or an object.
  std::string text(std::string_view key) const;
  /// A list of words, or one.
  std::vector<std::string> words(std::string_view key);

  /// Adds an error about a key's value.
  void refuse(std::string_view key, std::string what, std::string hint);
  /// Adds an error about a value that is not predicted.
  void refuse(std::string_view key, std::string what) { refuse(key, std::move(what), instead_); }

  /// Sentences about keys that the program ignores.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Found {
    const JsonValue* value;
    const JsonDocument* document;
  };
  void check(const JobLayer& layer, const JsonValue& object, const std::string& prefix);
  void check_key(const JobLayer& layer, const JsonMember& member, const std::string& name, const JobKey& row);
  const JsonValue* find(std::string_view key) const;
  std::optional<Found> found(std::string_view key) const;
  void expect(std::string_view key, std::string_view expected);

  std::vector<JobLayer> layers_;
  std::string instead_;
  Errors& errors_;
  std::vector<std::string> notes_;
};

}  // namespace fsdp::planner

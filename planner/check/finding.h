#pragma once

// What a rule says about a place of a configuration.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"

namespace fsdp::planner {

enum class Severity : std::uint8_t {
  Error,    ///< The run would fail, or would silently do something else.
  Warning,  ///< It costs memory or time.
  Note,     ///< It has no effect, or is worth knowing.
};

/// "error", "warning" or "note".
constexpr std::string_view name_of(Severity severity) {
  return severity == Severity::Error ? "error" : severity == Severity::Warning ? "warning" : "note";
}

/// A place of a file, or of the words of a line, whose file is "command".
struct FindingPlace {
  std::string file;
  int line = 1;              ///< From one.
  int column = 1;            ///< From one, in characters.
  std::uint32_t offset = 0;  ///< Index of its byte in the text.
  std::string pointer;       ///< RFC 6901, "/fsdp_config/fsdp_version"; empty for the whole file.

  bool operator==(const FindingPlace&) const = default;
};

/// "fsdp.yaml:12:3: /fsdp_config/fsdp_version".
std::string text_of(const FindingPlace& place);

/// How to mend it.
struct Mend {
  enum class How : std::uint8_t {
    Advice,   ///< `text` is a sentence.
    Replace,  ///< `text` is the value to write in place of the one there.
    Remove,   ///< The key and its value go.
  };
  How how = How::Advice;
  std::string key;   ///< The key of the line; empty for Advice.
  std::string text;  ///< Empty for Remove.

  bool operator==(const Mend&) const = default;
};

/// The mended line, "fsdp_version: 2", or what to do.
std::string text_of(const Mend& mend);

struct Finding {
  std::string_view rule;  ///< Its id: "wraps-root-only".
  Severity severity = Severity::Error;
  FindingPlace place;
  std::string what;           ///< One sentence: what happens.
  std::optional<Bytes> cost;  ///< What it costs, if the model is known.
  std::string cost_of;        ///< What `cost` counts: "of each GPU". Empty without a cost.
  Mend mend;

  bool operator==(const Finding&) const = default;
};

}  // namespace fsdp::planner

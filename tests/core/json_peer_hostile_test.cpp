// Our JSON reader against nlohmann/json: what one accepts the other accepts, with the same values, on documents that
// were generated and then damaged.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/base/json_document.h"

namespace fsdp {
namespace {

using Peer = nlohmann::json;

Peer any_document(int depth) {
  const int kind = *rc::gen::inRange(0, depth > 0 ? 8 : 6);
  if (kind == 0) return nullptr;
  if (kind == 1) return *rc::gen::arbitrary<bool>();
  if (kind == 2) return *rc::gen::arbitrary<std::int64_t>();
  if (kind == 3) return *rc::gen::map(rc::gen::arbitrary<int>(), [](int n) { return n / 1024.0; });
  if (kind < 6) return *rc::gen::string<std::string>();
  Peer made = kind == 6 ? Peer::array() : Peer::object();
  const int count = *rc::gen::inRange(0, 5);
  for (int i = 0; i < count; ++i) {
    if (kind == 6) {
      made.push_back(any_document(depth - 1));
    } else {
      made["k" + std::to_string(i)] = any_document(depth - 1);
    }
  }
  return made;
}

// Bytes that are not UTF-8 are replaced, so that the text is a document.
std::string text_of(const Peer& document) {
  return document.dump(*rc::gen::inRange(-1, 3), ' ', *rc::gen::arbitrary<bool>(), Peer::error_handler_t::replace);
}

bool same(const JsonValue& ours, const Peer& theirs) {
  switch (ours.type) {
    case JsonType::Null:
      return theirs.is_null();
    case JsonType::Bool:
      return theirs.is_boolean() && theirs.get<bool>() == ours.boolean;
    case JsonType::Number:
      if (ours.is_integer && theirs.is_number_integer()) return theirs.get<std::int64_t>() == ours.integer;
      return theirs.is_number() && theirs.get<double>() == ours.real;
    case JsonType::String:
      return theirs.is_string() && theirs.get<std::string>() == ours.text;
    case JsonType::Array:
      if (!theirs.is_array() || theirs.size() != ours.elements.size()) return false;
      for (std::size_t i = 0; i < theirs.size(); ++i) {
        if (!same(ours.elements[i], theirs[i])) return false;
      }
      return true;
    case JsonType::Object:
      if (!theirs.is_object() || theirs.size() != ours.members.size()) return false;
      for (const JsonMember& member : ours.members) {
        if (!theirs.contains(member.key) || !same(member.value, theirs[member.key])) return false;
      }
      return true;
  }
  return false;
}

RC_GTEST_PROP(JsonAndItsPeer, ReadTheSameValues, ()) {
  const std::string text = text_of(any_document(4));
  const auto ours = parse_json(text, "x.json");
  RC_ASSERT(ours.has_value());
  RC_ASSERT(same(ours->root, Peer::parse(text)));
}

RC_GTEST_PROP(JsonAndItsPeer, AgreeOnWhatIsBroken, ()) {
  std::string text = text_of(any_document(3));
  const int damages = *rc::gen::inRange(1, 4);
  for (int i = 0; i < damages && !text.empty(); ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    const char byte = *rc::gen::elementOf(std::string("{}[]\",:0123456789.eE+-tfn \\u/\t"));
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        text.erase(at, 1);
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      default:
        text[at] = byte;
    }
  }
  const auto ours = parse_json(text, "x.json");
  const Peer theirs = Peer::parse(text, nullptr, false);
  if (ours) RC_ASSERT(!theirs.is_discarded() && same(ours->root, theirs));
  // The other way round but for keys that stand twice, which a spec may not have.
  if (!ours && !theirs.is_discarded())
    RC_ASSERT(to_string(ours.error().front()).find("a second time") != std::string::npos);
}

}  // namespace
}  // namespace fsdp

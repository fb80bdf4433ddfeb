// Plan files that were damaged: every one is read or refused with an error that says where; none crashes the reader.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "core/plan/plan_file.h"
#include "tests/support/any_plan.h"

namespace fsdp {
namespace {

/// Pieces that are likely to hurt: extremes, other types, half tokens.
rc::Gen<std::string> any_piece() {
  return rc::gen::element<std::string>("", "null", "{}", "[]", "-1", "0", "1e999", "9223372036854775808", "NaN", "\"\"",
                                       "{0..9223372036854775807}", "{0..99999999}", "\"a.{1..3..0}\"", "[[[[[[[[", "}",
                                       "\"", ",", "\\u0000", "\xff\xfe", "1.5", "true", "\"8bit\"");
}

/// Replaces a stretch of the text, anywhere, by a piece.
std::string damaged(std::string text) {
  const int num_wounds = *rc::gen::inRange(1, 4);
  for (int i = 0; i < num_wounds; ++i) {
    const auto begin = *rc::gen::inRange<std::size_t>(0, text.size() + 1);
    const auto length = *rc::gen::inRange<std::size_t>(0, 40);
    text.replace(begin, std::min(length, text.size() - begin), *any_piece());
  }
  return text;
}

RC_GTEST_PROP(PlanFileHostile, DamagedFileIsReadOrRefusedWithItsPlace, ()) {
  const std::string text = damaged(to_text(PlanFile{.plan = *any_plan()}));
  const Result<JsonDocument> document = parse_json(text, "p.json");
  if (!document) {
    RC_ASSERT(!document.error().empty());
    for (const Error& error : document.error()) RC_ASSERT(error.where.starts_with("p.json"));
    return;
  }
  const Result<PlanFile> file = read_plan(*document);
  if (file) {
    // What is read can be written, and reads as the same plan again.
    const Result<JsonDocument> again = parse_json(to_text(*file), "again.json");
    RC_ASSERT(again.has_value());
    const Result<PlanFile> same = read_plan(*again);
    RC_ASSERT(same.has_value());
    RC_ASSERT(*same == *file);
    return;
  }
  RC_ASSERT(!file.error().empty());
  for (const Error& error : file.error()) {
    RC_ASSERT(error.where.starts_with("p.json:"));
    RC_ASSERT(!error.what.empty());
  }
}

RC_GTEST_PROP(PlanFileHostile, TruncatedFileIsNeverAPlan, ()) {
  const std::string text = to_text(PlanFile{.plan = *any_plan()});
  // Without the last bracket and the newline after it.
  const auto length = *rc::gen::inRange<std::size_t>(0, text.size() - 2);
  RC_ASSERT(!parse_json(text.substr(0, length), "p.json").has_value());
}

}  // namespace
}  // namespace fsdp

// What an editor shows of a model spec. tests/schemas_test.py compares the schema with what the program reads.

#include "core/spec/model_schema.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/json_document.h"

namespace fsdp {
namespace {

TEST(ModelSchema, EveryPropertyIsDescribed) {
  const auto schema = parse_json(model_schema(), "schema");
  ASSERT_TRUE(schema);
  const JsonValue& definitions = *schema->root.find("definitions");
  // A property says what it is, itself or by the definition that it points to.
  const auto is_described = [&](const JsonValue& property) {
    const JsonValue* reference = property.find("$ref");
    const JsonValue* of = reference == nullptr ? &property : definitions.find(reference->text.substr(14));
    const JsonValue* description = of == nullptr ? nullptr : of->find("description");
    return (description != nullptr && !description->text.empty()) || property.find("const") != nullptr;
  };
  int checked = 0;
  const auto check = [&](const std::string& name, const JsonValue& object) {
    const JsonValue* properties = object.find("properties");
    if (properties == nullptr) return;
    for (const JsonMember& member : properties->members) {
      EXPECT_TRUE(is_described(member.value)) << name << ": " << member.key;
      ++checked;
    }
  };
  check("the root", schema->root);
  for (const JsonMember& member : definitions.members) check(member.key, member.value);
  EXPECT_GT(checked, 500);
}

}  // namespace
}  // namespace fsdp

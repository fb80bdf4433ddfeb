// model.schema.json and the reader know the same keys. tests/schemas_test.py checks the shipped files against it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/block_kinds.h"
#include "core/json_document.h"
#include "core/model_spec.h"
#include "core/spec_ops.h"

namespace fsdp {
namespace {

using Names = std::set<std::string>;

const JsonDocument& schema() {
  static const JsonDocument document = *read_json_file("model_specs/schemas/model.schema.json");
  return document;
}

const JsonValue& definition(const std::string& name) {
  const JsonValue* found = schema().root.find("definitions")->find(name);
  if (found == nullptr) throw std::runtime_error("The schema does not define " + name);
  return *found;
}

Names property_names(const JsonValue& object) {
  Names names;
  for (const JsonMember& member : object.find("properties")->members) names.insert(member.key);
  return names;
}

Names strings_of(const JsonValue* list) {
  Names names;
  if (list == nullptr) return names;
  for (const JsonValue& element : list->elements) names.insert(element.text);
  return names;
}

/// The keys that the reader knows at a place: it names the absent ones when it meets a key far from all of them.
/// `present` are those that stand there already.
Names keys_of_reader(const std::string& text, const Names& present) {
  const auto spec = parse_model_spec(text, "probe.json");
  EXPECT_FALSE(spec.has_value()) << text;
  Names names = present;
  for (const Error& error : spec.error()) {
    if (error.what != "Unknown key \"0123456789\".") continue;
    std::string known = error.hint.substr(std::string("Known are ").size());
    for (const char* separator : {" and ", ", "}) {
      for (std::size_t at; (at = known.find(separator)) != std::string::npos;)
        known.replace(at, std::string(separator).size(), "|");
    }
    known.back() = '|';  // The full stop.
    for (std::size_t begin = 0, end; (end = known.find('|', begin)) != std::string::npos; begin = end + 1) {
      names.insert(known.substr(begin, end - begin));
    }
  }
  return names;
}

constexpr const char* kPoison = R"("0123456789": 1)";

TEST(ModelSchema, KnowsTheKeysOfTheReader) {
  const auto member = [](const std::string& key, const std::string& inside) {
    return fmt::format(R"({{"{}": {}}})", key, inside);
  };
  const std::string poisoned = fmt::format("{{{}}}", kPoison);
  EXPECT_EQ(keys_of_reader(poisoned, {}), property_names(schema().root));
  EXPECT_EQ(keys_of_reader(member("inputs", member("x", poisoned)), {}), property_names(definition("input")));
  EXPECT_EQ(keys_of_reader(member("classes", member("x", poisoned)), {}), property_names(definition("class")));
  EXPECT_EQ(keys_of_reader(member("recipes", member("x", poisoned)), {}), property_names(definition("recipe")));
  for (const std::string part : {"mixed_precision", "optimizer"}) {
    const std::string recipe = member("recipes", member("x", member(part, poisoned)));
    EXPECT_EQ(keys_of_reader(recipe, {}), property_names(definition(part)));
  }
  const std::string ops = fmt::format(R"({{"modules": [{{"ops": [], {}}}]}})", kPoison);
  EXPECT_EQ(keys_of_reader(ops, {"ops"}), [] {
    Names names = property_names(definition("plain_ops"));
    names.insert("block");  // The reader offers both; the schema tells them apart by "oneOf".
    return names;
  }());
}

TEST(ModelSchema, KnowsEveryBlockWithItsOptions) {
  Names kinds;
  for (const BlockKind& kind : block_kinds()) {
    kinds.insert(std::string(kind.name));
    const JsonValue& block = definition(fmt::format("block_{}", kind.name));
    Names expected = property_names(definition("plain_ops"));
    expected.erase("ops");
    expected.insert({"block", "per_layer"});
    Names required;
    for (const OptionRule& rule : kind.options) {
      EXPECT_TRUE(expected.insert(std::string(rule.name)).second) << kind.name << ": " << rule.name << " is taken";
      if (rule.required) required.insert(std::string(rule.name));
      EXPECT_FALSE(rule.doc.empty()) << kind.name << ": " << rule.name;
      const JsonValue& property = *block.find("properties")->find(rule.name);
      EXPECT_EQ(property.find("description")->text, rule.doc);
      if (!rule.allowed.empty()) {
        EXPECT_EQ(strings_of(property.find("enum")), Names(rule.allowed.begin(), rule.allowed.end())) << rule.name;
      }
    }
    EXPECT_EQ(property_names(block), expected) << kind.name;
    Names required_by_schema;
    if (const JsonValue* all_of = block.find("allOf")) {
      for (const JsonValue& one : all_of->elements) {
        required_by_schema.insert(one.find("anyOf")->elements[0].find("required")->elements[0].text);
      }
    }
    EXPECT_EQ(required_by_schema, required) << kind.name;
    EXPECT_EQ(block.find("description")->text, kind.doc);
  }
  EXPECT_EQ(strings_of(definition("module").find("properties")->find("block")->find("enum")), kinds);
}

TEST(ModelSchema, KnowsEveryPlainOpWithItsAttributes) {
  Names kinds;
  for (int i = 0; i < kNumOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (!is_plain_op(kind)) continue;
    kinds.insert(std::string(name_of(kind)));
    const JsonValue& op = definition(fmt::format("op_{}", name_of(kind)));
    Names expected = {"op", "module", "class", "inputs", "outputs"};
    Names required = {"op"};
    for (const OptionRule& rule : attribute_rules(kind)) {
      EXPECT_TRUE(expected.insert(std::string(rule.name)).second) << name_of(kind) << ": " << rule.name << " is taken";
      if (rule.required) required.insert(std::string(rule.name));
    }
    EXPECT_EQ(property_names(op), expected) << name_of(kind);
    EXPECT_EQ(strings_of(op.find("required")), required) << name_of(kind);
  }
  EXPECT_EQ(strings_of(definition("op").find("properties")->find("op")->find("enum")), kinds);
}

TEST(ModelSchema, EveryPropertyIsDescribed) {
  // A property says what it is, itself or by the definition that it points to.
  const auto is_described = [](const JsonValue& property) {
    if (property.find("description") != nullptr || property.find("const") != nullptr) return true;
    const JsonValue* reference = property.find("$ref");
    if (reference == nullptr) return false;
    return definition(reference->text.substr(std::string("#/definitions/").size())).find("description") != nullptr;
  };
  const auto check = [&](const std::string& name, const JsonValue& object) {
    const JsonValue* properties = object.find("properties");
    if (properties == nullptr) return;
    for (const JsonMember& member : properties->members) {
      EXPECT_TRUE(is_described(member.value)) << name << ": " << member.key;
    }
  };
  check("the root", schema().root);
  for (const JsonMember& member : schema().root.find("definitions")->members) check(member.key, member.value);
}

}  // namespace
}  // namespace fsdp

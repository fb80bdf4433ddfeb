#include "core/base/object_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fsdp {

namespace {

using namespace literals;

enum class Color { Red, Green };
constexpr EnumName<Color> kColors[] = {{Color::Red, "red"}, {Color::Green, "green"}};
constexpr EnumTable<Color> kColorTable{"color", kColors};

struct Part {
  std::string name;
  int count = 1;

  bool operator==(const Part&) const = default;
};

struct Machine {
  std::string name;
  bool fast = false;
  std::int64_t serial = 0;
  double share = 0.5;
  Bytes memory;
  Bytes used;
  BytesPerSecond bandwidth;
  FlopsPerSecond peak;
  Seconds latency{0};
  Color color = Color::Red;
  std::vector<int> shape;
  std::vector<Part> parts;
  std::optional<int> spare;

  bool operator==(const Machine&) const = default;
};

bool read_json(const JsonValue& value, Part& part, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("name", part.name);
  object.optional("count", part.count, IntegerRange{1, 8});
  return object.finish();
}

bool read_json(const JsonValue& value, Machine& machine, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.ignore("$schema");
  object.required("name", machine.name);
  object.optional("fast", machine.fast);
  object.optional("serial", machine.serial);
  object.optional("share", machine.share, RealRange{0, 1});
  object.optional("memory", machine.memory);
  object.optional("used", machine.used, kInBytes);
  object.optional("bandwidth", machine.bandwidth);
  object.optional("peak", machine.peak);
  object.optional("latency", machine.latency);
  object.optional("color", machine.color, kColorTable);
  object.optional("shape", machine.shape, IntegerRange{0, 1024});
  object.optional("parts", machine.parts);
  object.optional("spare", machine.spare);
  return object.finish();
}

Result<Machine> read_machine(const std::string& text) {
  FSDP_TRY(const JsonDocument document, parse_json(text, "m.json"));
  JsonErrors errors(document);
  Machine machine;
  const bool good = read_json(document.root, machine, errors);
  EXPECT_EQ(good, errors.empty());
  return std::move(errors).result(std::move(machine));
}

std::string messages(const std::string& text) {
  const Result<Machine> machine = read_machine(text);
  if (machine) return "good";
  std::string lines;
  for (const Error& error : machine.error()) lines += (lines.empty() ? "" : "\n") + to_string(error);
  return lines;
}

TEST(ObjectReader, ReadsEveryType) {
  const auto machine = read_machine(R"({
    "$schema": "m.schema.json",
    "name": "a", "fast": true, "serial": -9223372036854775808, "share": 1, "memory": "16GiB", "used": 1024,
    "bandwidth": "450GB/s", "peak": "312TFLOPS", "latency": "3.5us", "color": "green", "shape": [1024, 10],
    "parts": [{"name": "x", "count": 8}, {"name": "y"}], "spare": 3})");
  ASSERT_TRUE(machine) << to_string(machine.error().front());
  const Machine expected{.name = "a",
                         .fast = true,
                         .serial = std::numeric_limits<std::int64_t>::min(),
                         .share = 1,
                         .memory = 16_GiB,
                         .used = 1_KiB,
                         .bandwidth = BytesPerSecond(450e9),
                         .peak = FlopsPerSecond(312e12),
                         .latency = Seconds(3.5e-6),
                         .color = Color::Green,
                         .shape = {1024, 10},
                         .parts = {{"x", 8}, {"y", 1}},
                         .spare = 3};
  EXPECT_EQ(*machine, expected);
}

TEST(ObjectReader, ReportsAllErrorsInTheOrderOfTheFile) {
  EXPECT_EQ(messages("{\"parts\": [{\"count\": 9},\n 7],\n \"fast\": 1,\n \"nam\": \"a\"}"),
            "m.json:1:12: /parts/0: \"name\" is missing. Add \"name\" to this object.\n"
            "m.json:1:22: /parts/0/count: 9 is out of range. Write an integer from 1 to 8.\n"
            "m.json:2:2: /parts/1: Expected an object, found the number 7.\n"
            "m.json:3:10: /fast: Expected true or false, found the number 1.\n"
            "m.json:4:2: /nam: Unknown key \"nam\". Did you mean \"name\"?");
}

TEST(ObjectReader, AMissingKeyIsNamed) {
  EXPECT_EQ(messages("{}"), "m.json:1:1: \"name\" is missing. Add \"name\" to this object.");
}

TEST(ObjectReader, UnknownKeyFarFromAllErrorListsKeys) {
  EXPECT_EQ(
      messages(R"({"name": "a", "xyzzy": 1})"),
      "m.json:1:15: /xyzzy: Unknown key \"xyzzy\". Known are $schema, bandwidth, color, fast, latency, memory, name, "
      "parts, peak, serial, shape, share, spare and used.");
}

TEST(ObjectReader, PresentKeyIsNotSuggested) {
  // "nam" is nearest to "name", but that one is there.
  EXPECT_EQ(messages(R"({"name": "a", "nam": "b"})").find("Did you mean \"name\""), std::string::npos);
}

TEST(ObjectReader, WrongTypeErrorNamesTheFoundType) {
  const auto of = [](const std::string& member) { return messages("{\"name\": \"a\", " + member + "}"); };
  EXPECT_EQ(messages("[]"), "m.json:1:1: Expected an object, found a list.");
  EXPECT_EQ(messages("{\"name\": null}"), "m.json:1:10: /name: Expected a string, found null.");
  EXPECT_EQ(of("\"fast\": \"yes\""), "m.json:1:23: /fast: Expected true or false, found the string \"yes\".");
  EXPECT_EQ(of("\"serial\": 1.0"),
            "m.json:1:25: /serial: Expected an integer, found the number 1.0. Write an integer.");
  EXPECT_EQ(of("\"serial\": 9223372036854775808"),
            "m.json:1:25: /serial: 9223372036854775808 is out of range. Write an integer.");
  EXPECT_EQ(of("\"spare\": 4294967296"),
            "m.json:1:24: /spare: 4294967296 is out of range. Write an integer from -2147483648 to 2147483647.");
  EXPECT_EQ(of("\"share\": 1.5"), "m.json:1:24: /share: 1.5 is out of range. Write a number from 0 to 1.");
  EXPECT_EQ(of("\"share\": {}"),
            "m.json:1:24: /share: Expected a number, found an object. Write a number from 0 to 1.");
  EXPECT_EQ(of("\"shape\": 3"), "m.json:1:24: /shape: Expected a list, found the number 3.");
  EXPECT_EQ(of("\"shape\": [1, 2048]"),
            "m.json:1:28: /shape/1: 2048 is out of range. Write an integer from 0 to 1024.");
  EXPECT_EQ(of("\"color\": \"gren\""), "m.json:1:24: /color: Unknown color \"gren\". Did you mean \"green\"?");
  EXPECT_EQ(of("\"color\": 3"),
            "m.json:1:24: /color: Expected the name of a color, found the number 3. Known are red and green.");
}

TEST(ObjectReader, QuantitiesNeedTheirUnit) {
  const auto of = [](const std::string& member) { return messages("{\"name\": \"a\", " + member + "}"); };
  EXPECT_EQ(of("\"memory\": 80"),
            "m.json:1:25: /memory: Expected a size with its unit, found the number 80. Did you mean \"80G\"?");
  EXPECT_EQ(of("\"memory\": true"),
            "m.json:1:25: /memory: Expected a size with its unit, found true. Write it as \"16GiB\".");
  EXPECT_EQ(
      of("\"bandwidth\": \"400Gbps\""),
      "m.json:1:28: /bandwidth: \"400Gbps\" counts bits; divide it by 8. Write a positive number and GB/s, GiB/s, MB/s "
      "or MiB/s, such as \"450GB/s\".");
  EXPECT_EQ(
      of("\"latency\": 3"),
      "m.json:1:26: /latency: Expected a time with its unit, found the number 3. Write a number and ns, us, ms, s, min "
      "or h, such as \"3.5us\".");
  EXPECT_EQ(of("\"used\": \"1KiB\""),
            "m.json:1:23: /used: Expected an integer, found the string \"1KiB\". Write an integer from 0 to "
            "4611686018427387904.");
  EXPECT_EQ(of("\"used\": -1"),
            "m.json:1:23: /used: -1 is out of range. Write an integer from 0 to 4611686018427387904.");
}

TEST(ObjectReader, RepeatedErrorsStopAt50) {
  std::string text = "{\"name\": \"a\", \"shape\": [-1";
  for (int i = 0; i < 99; ++i) text += ", -1";
  const auto machine = read_machine(text + "]}");
  ASSERT_FALSE(machine);
  ASSERT_EQ(machine.error().size(), 51U);
  EXPECT_EQ(to_string(machine.error().back()), "m.json: There are 50 more errors.");
}

}  // namespace

}  // namespace fsdp

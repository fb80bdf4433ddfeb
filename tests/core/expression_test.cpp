#include "core/base/expression.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

Result<double> lookup(std::string_view name) {
  if (name == "seconds") return 10.0;
  if (name == "batch") return 2.0;
  return failure("here", "There is no " + std::string(name) + ".");
}

double value_of(std::string_view expression) {
  const auto value = evaluate(expression, lookup, "here");
  EXPECT_TRUE(value.has_value()) << expression << ": " << to_string(value.error().front());
  return value.value_or(-1);
}

std::string message_of(std::string_view expression) {
  const auto value = evaluate(expression, lookup, "here");
  if (value) return "a value";
  return value.error().front().what;
}

TEST(Expression, EvaluatesArithmeticOverDimensions) {
  EXPECT_EQ(value_of("4096"), 4096);
  EXPECT_EQ(value_of("ceil(12.5 * seconds)"), 125);
  EXPECT_EQ(value_of("ceil(12.51 * seconds)"), 126);
  EXPECT_EQ(value_of("2 + 3 * batch"), 8);
  EXPECT_EQ(value_of("(2 + 3) * batch"), 10);
  EXPECT_EQ(value_of("10 - 4 - 3"), 3);
  EXPECT_EQ(value_of("-batch + 5"), 3);
  EXPECT_EQ(value_of("7 % 4"), 3);
  EXPECT_EQ(value_of("floor(7 / 2) + round(7 / 2)"), 7);
  EXPECT_EQ(value_of("max(batch, 3, seconds) - min(4, batch)"), 8);
  EXPECT_EQ(value_of("1e3"), 1000);
}

TEST(Expression, ReportsEachMistake) {
  EXPECT_EQ(message_of("second"), "There is no second.");
  EXPECT_EQ(message_of("1 +"), "The expression \"1 +\" does not work: It ends too early.");
  EXPECT_EQ(message_of("1 2"),
            "The expression \"1 2\" does not work: Unexpected \"2\" after the end of the expression.");
  EXPECT_EQ(message_of("ceil 3"),
            "The expression \"ceil 3\" does not work: \"ceil\" needs its argument in parentheses.");
  EXPECT_EQ(message_of("floor(1, 2)"), "The expression \"floor(1, 2)\" does not work: \"floor\" takes one argument.");
  EXPECT_EQ(message_of("(1"), "The expression \"(1\" does not work: A \")\" is missing.");
  EXPECT_EQ(message_of("3 / (2 - batch)"), "The expression \"3 / (2 - batch)\" does not work: It divides by zero.");
  EXPECT_EQ(message_of("1e308 * 10"), "The expression \"1e308 * 10\" does not work: Its value is not a finite number.");
  EXPECT_EQ(message_of("#"), "The expression \"#\" does not work: \"#\" is neither a number nor a name.");
}

TEST(Expression, DeepNestingIsAnErrorAndNoCrash) {
  EXPECT_NE(message_of(std::string(100'000, '(')).find("It is nested too deeply."), std::string::npos);
  EXPECT_NE(message_of(std::string(100'000, '-')).find("It is nested too deeply."), std::string::npos);
}

TEST(Expression, ListsItsDimensionNames) {
  EXPECT_EQ(names_in("ceil(12.5 * seconds) + batch * 2e3"), (std::vector<std::string>{"seconds", "batch"}));
  EXPECT_TRUE(is_dimension_name("seq"));
  EXPECT_TRUE(is_dimension_name("image_size2"));
  EXPECT_FALSE(is_dimension_name("2seq"));
  EXPECT_FALSE(is_dimension_name("max"));
  EXPECT_FALSE(is_dimension_name(""));
  EXPECT_FALSE(is_dimension_name("a-b"));
}

}  // namespace
}  // namespace fsdp

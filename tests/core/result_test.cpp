#include "core/base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace fsdp {
namespace {

TEST(AnError, IsPrintedAsWhereWhatAndHintOnOneLine) {
  const Error error{.where = "llama.json:12:7: /layers/3/shape", .what = "\"x\" is not a size.", .hint = "Write 4096."};
  EXPECT_EQ(to_string(error), "llama.json:12:7: /layers/3/shape: \"x\" is not a size. Write 4096.");
}

TEST(AnError, OmitsAMissingPlaceAndHint) {
  EXPECT_EQ(to_string(Error{.where = "", .what = "Zero GPUs.", .hint = "Write 1 or more."}),
            "Zero GPUs. Write 1 or more.");
  EXPECT_EQ(to_string(Error{.where = "--gpus", .what = "Zero GPUs.", .hint = ""}), "--gpus: Zero GPUs.");
  EXPECT_EQ(to_string(Error{.where = "", .what = "Zero GPUs.", .hint = ""}), "Zero GPUs.");
}

Result<int> positive(int number) {
  if (number <= 0) return failure("number", "It is not positive.", "Write 1 or more.");
  return number;
}

Result<int> sum_of_positives(int a, int b) {
  FSDP_TRY(const int first, positive(a));
  FSDP_TRY(const int second, positive(b));
  return first + second;
}

TEST(Try, ContinuesWithTheValueOfASuccessfulCall) {
  EXPECT_EQ(sum_of_positives(2, 3), 5);
}

TEST(Try, ReturnsTheErrorsOfTheFirstCallThatFails) {
  const Errors expected{{.where = "number", .what = "It is not positive.", .hint = "Write 1 or more."}};
  ASSERT_FALSE(sum_of_positives(0, 3).has_value());
  EXPECT_EQ(sum_of_positives(0, 3).error(), expected);
  EXPECT_EQ(sum_of_positives(2, -1).error(), expected);
}

// A move-only value would not compile if the macro copied.
Result<std::unique_ptr<int>> boxed(int number) {
  FSDP_TRY(std::unique_ptr<int> box, Result<std::unique_ptr<int>>(std::make_unique<int>(number)));
  return box;
}

TEST(Try, MovesTheValueOut) {
  EXPECT_EQ(**boxed(7), 7);
}

}  // namespace
}  // namespace fsdp

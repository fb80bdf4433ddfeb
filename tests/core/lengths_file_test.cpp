// Files of lengths: one in each line, or a JSON array.

#include "core/formats/lengths_file.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

using ReadLengths = std::vector<std::int64_t>;

TEST(LengthsFile, HasOneInEachLineOrAJsonArray) {
  for (const char* text : {"12\n7\n\n# tokens\n 900\r\n", "[12, 7,\n900]"}) {
    const auto lengths = parse_lengths(text, "lengths.txt", "--lengths");
    ASSERT_TRUE(lengths.has_value()) << text;
    EXPECT_EQ(*lengths, (ReadLengths{12, 7, 900})) << text;
  }
}

TEST(LengthsFile, MistakesAreNamedWithTheirLine) {
  const auto mistakes = [](std::string_view text) {
    std::string all;
    const auto read = parse_lengths(text, "a.txt", "--lengths");
    if (read) return std::string("it is read");
    for (const Error& error : read.error()) all += to_string(error) + "\n";
    return all;
  };
  EXPECT_EQ(mistakes("5\n-1\n7.5\n"),
            "--lengths: a.txt: line 2, \"-1\", is no length. Write a number of tokens above 0.\n"
            "--lengths: a.txt: line 3, \"7.5\", is no length. Write a number of tokens above 0.\n");
  EXPECT_EQ(mistakes("[5, \"a\"]"),
            "--lengths: a.txt: element 2, \"\"a\"\", is no length. Write a number of tokens above 0.\n");
  for (const char* text : {"", "# none\n", "[]"}) {
    EXPECT_EQ(mistakes(text),
              "--lengths: a.txt has no lengths. Write a number of tokens in each line, or a JSON array of them.\n");
  }
}

}  // namespace
}  // namespace fsdp

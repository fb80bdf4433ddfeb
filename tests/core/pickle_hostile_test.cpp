// Broken pickles: whatever it is, the answer is values or an error, never a crash. Meant for a build with sanitizers.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/formats/pickle.h"

namespace fsdp {
namespace {

using namespace std::string_literals;

/// One of nearly everything that is read: what Python wrote for a dict of lists, tuples, texts and numbers.
const std::string kGood =
    "\x80\x04\x95\x40\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
    "a\x94]\x94(K\x01J\xff\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01"
    "e\x8c\x01t\x94(K\x01K\x02K\x03K\x04t\x94\x8c\x01"
    "f\x94G\x3f\xf8\x00\x00\x00\x00\x00\x00\x8c\x01n\x94N\x8c\x01"
    "b\x94\x88\x89\x86\x94\x8c\x04same\x94h\x02u."s;

/// Looks at everything to a depth; a list may hold itself.
std::int64_t walk(const PickleValue& value, int depth) {
  std::int64_t sum = value.as_int().value_or(0) / 4 + static_cast<std::int64_t>(value.as_text().value_or("").size());
  if (depth == 0) return sum;
  for (std::size_t i = 0; i < value.size() && i < 4; ++i) {
    sum /= 2;
    sum += walk(value.at(i), depth - 1) / 8;
    if (value.kind() == PickleKind::Dict) sum += walk(value.key_at(i), depth - 1) / 8;
  }
  return sum;
}

void read_and_walk(const std::string& bytes) {
  const Result<PickleDocument> document =
      read_pickle(bytes, "p", {.values = 100'000, .containers = 100'000, .depth = 100});
  if (document) {
    walk(document->root(), 5);
  } else {
    ASSERT_EQ(document.error().size(), 1U);
    ASSERT_FALSE(document.error().front().what.empty());
  }
}

TEST(BrokenPickle, IntactFileIsRead) {
  ASSERT_TRUE(read_pickle(kGood, "p"));
}

TEST(BrokenPickle, TruncationAtAnyByteIsAnError) {
  for (std::size_t size = 0; size < kGood.size(); ++size) EXPECT_FALSE(read_pickle(kGood.substr(0, size), "p")) << size;
}

TEST(BrokenPickle, AnyChangedByteIsReadOrRefused) {
  for (std::size_t at = 0; at < kGood.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = kGood;
      changed[at] = static_cast<char>(byte);
      read_and_walk(changed);
    }
  }
}

TEST(BrokenPickle, RandomOperationsAreReadOrRefused) {
  constexpr std::string_view kOperations =
      "()012BCGJKMNX]adehjlqrstu}.\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x94\x95";
  std::uint64_t state = 1;
  const auto next = [&](std::uint64_t n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % n;
  };
  for (int i = 0; i < 50'000; ++i) {
    std::string bytes = "\x80\x04";
    for (std::uint64_t size = next(60); size > 0; --size) {
      bytes += next(3) == 0 ? static_cast<char>(next(4)) : kOperations[next(kOperations.size())];
    }
    read_and_walk(bytes + ".");
  }
}

TEST(BrokenPickle, DeepNestingDoesNotExhaustTheStack) {
  std::string bytes = "\x80\x04N";
  bytes.append(50'000, '\x85');
  read_and_walk(bytes + ".");
}

}  // namespace
}  // namespace fsdp

// Broken safetensors files: whatever it is, the answer is a header in which every byte has its tensor, or errors that
// name the file; never a crash. Meant for a build with sanitizers.

#include "core/formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/formats/stored_tensors.h"

namespace fsdp {
namespace {

const std::string kGoodFile =
    R"({"__metadata__":{"format":"pt","DCP_SHARDING_INFO":"{\"a\":{\"saved_offsets\":[2,0]},\"b\":{\"saved_offsets\":[]}}"},)"
    R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})";

std::int64_t size_of_file(const std::string& header) {
  return kSafetensorsLengthBytes + static_cast<std::int64_t>(header.size()) + 26;
}

/// What every reader relies on.
void read_and_check(const std::string& header, std::int64_t file_bytes) {
  const Result<SafetensorsHeader> read = parse_safetensors_header(header, "f.safetensors", file_bytes);
  if (!read) {
    ASSERT_FALSE(read.error().empty());
    for (const Error& error : read.error()) ASSERT_NE(error.where.find("f.safetensors"), std::string::npos);
    return;
  }
  std::int64_t next = kSafetensorsLengthBytes + static_cast<std::int64_t>(header.size());
  for (const SafetensorsEntry& entry : read->entries) {
    ASSERT_EQ(entry.begin, next);
    ASSERT_LE(entry.begin, entry.end);
    if (entry.dtype) {
      ASSERT_EQ(checked_bytes(entry.shape, *entry.dtype), entry.end - entry.begin);
    }
    next = entry.end;
  }
  ASSERT_EQ(next, file_bytes);
}

TEST(BrokenSafetensors, IntactFileIsRead) {
  const auto read = parse_safetensors_header(kGoodFile, "f", size_of_file(kGoodFile));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->entries[0].saved_offsets, (Shape{2, 0}));
}

TEST(BrokenSafetensors, AHeaderCutAtAnyByteIsAnError) {
  for (std::size_t size = 0; size < kGoodFile.size(); ++size) {
    const std::string cut = kGoodFile.substr(0, size);
    EXPECT_FALSE(parse_safetensors_header(cut, "f", size_of_file(cut))) << size;
  }
}

TEST(BrokenSafetensors, AFileOfAnotherSizeIsAnError) {
  for (const std::int64_t wrong : {-27, -26, -25, -1, 1, 8, 1 << 30}) {
    EXPECT_FALSE(parse_safetensors_header(kGoodFile, "f", size_of_file(kGoodFile) + wrong)) << wrong;
  }
}

TEST(BrokenSafetensors, AnyChangedByteIsReadOrRefused) {
  for (std::size_t at = 0; at < kGoodFile.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = kGoodFile;
      changed[at] = static_cast<char>(byte);
      read_and_check(changed, size_of_file(changed));
    }
  }
}

TEST(BrokenSafetensors, AnyChangedNumberIsReadOrRefused) {
  const std::string numbers[] = {"-1",
                                 "0",
                                 "1",
                                 "1e3",
                                 "1.5",
                                 "4294967296",
                                 "4611686018427387904",
                                 "9223372036854775807",
                                 "18446744073709551616",
                                 "null",
                                 "[]",
                                 "\"3\""};
  for (std::size_t at = 0; at < kGoodFile.size(); ++at) {
    if (kGoodFile[at] < '0' || kGoodFile[at] > '9') continue;
    for (const std::string& number : numbers) {
      std::string changed = kGoodFile;
      changed.replace(at, 1, number);
      read_and_check(changed, size_of_file(changed));
    }
  }
}

TEST(BrokenSafetensors, SizesWhoseProductWouldWrapAreRefused) {
  // 2^32 * 2^32 elements are 0 in 64 bits, and so are their bytes.
  const std::string header = R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})";
  EXPECT_FALSE(
      parse_safetensors_header(header, "f", kSafetensorsLengthBytes + static_cast<std::int64_t>(header.size())));
  EXPECT_EQ(checked_bytes({1LL << 32, 1LL << 32}, Dtype::UInt8), std::nullopt);
  EXPECT_EQ(checked_bytes({1LL << 32, 1LL << 32, 0}, Dtype::UInt8), 0);
}

TEST(BrokenSafetensors, OverlapsAndGapsAreRefused) {
  for (const auto* const second : {"[12,36]", "[25,49]", "[0,24]"}) {
    const std::string header = std::string(R"({"a":{"dtype":"U8","shape":[24],"data_offsets":[0,24]},)") +
                               R"("b":{"dtype":"U8","shape":[24],"data_offsets":)" + second + "}}";
    EXPECT_FALSE(
        parse_safetensors_header(header, "f", kSafetensorsLengthBytes + static_cast<std::int64_t>(header.size()) + 48));
  }
}

class BrokenFile : public testing::Test {
 protected:
  BrokenFile()
      : path_((std::filesystem::path(testing::TempDir()) /
               ("broken_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
                std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + ".safetensors"))
                  .string()) {}
  ~BrokenFile() override { std::filesystem::remove(path_); }

  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }

  std::string path_;
};

TEST_F(BrokenFile, TruncationAtAnyByteIsRefusedAndNamed) {
  const SafetensorsEntry entry{.name = "a", .dtype_name = "F32", .dtype = Dtype::Float32, .shape = {2, 3}};
  const std::string good = safetensors_header_text({&entry, 1}) + std::string(24, 'x');
  write(good);
  ASSERT_TRUE(read_stored_tensors({path_}));
  for (std::size_t size = 0; size < good.size(); ++size) {
    write(good.substr(0, size));
    const auto read = read_stored_tensors({path_});
    ASSERT_FALSE(read) << size;
    EXPECT_NE(read.error()[0].where.find(path_), std::string::npos);
  }
}

TEST_F(BrokenFile, AnyLengthOfTheHeaderIsReadOrRefused) {
  for (const std::uint64_t length : {0ULL, 1ULL, 2ULL, 60ULL, 1ULL << 27, 1ULL << 40, 1ULL << 63, ~0ULL}) {
    std::string bytes(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xff);
    write(bytes + "{}" + std::string(70, ' '));
    EXPECT_FALSE(read_safetensors_header(path_)) << length;
  }
}

TEST_F(BrokenFile, PartsThatOverlapOrLeaveGapsAreRefused) {
  for (const auto* const offset : {"[0]", "[1]", "[3]", "[1152921504606846976]", "[-1]", "[0,0]", "[]"}) {
    const SafetensorsEntry entries[] = {{.name = "a", .dtype_name = "U8", .dtype = Dtype::UInt8, .shape = {2}}};
    const auto part = [&](const std::string& at) {
      return safetensors_header_text(entries,
                                     std::vector<std::pair<std::string, std::string>>{
                                         {"DCP_SHARDING_INFO", R"({"a":{"saved_offsets":)" + at + "}}"}}) +
             "xy";
    };
    write(part("[0]"));
    const std::string second = path_ + ".2.safetensors";
    std::ofstream(second, std::ios::binary) << part(offset);
    EXPECT_FALSE(read_stored_tensors({path_, second})) << offset;
    std::ofstream(second, std::ios::binary) << part("[2]");
    const auto both = read_stored_tensors({path_, second});
    ASSERT_TRUE(both);
    EXPECT_EQ(both->tensors[0].shape, Shape{4});
    std::filesystem::remove(second);
  }
}

}  // namespace
}  // namespace fsdp

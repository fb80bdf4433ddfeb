#include "core/formats/stored_tensors.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/formats/safetensors.h"

namespace fsdp {
namespace {

class StoredTensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("stored_tensors_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// One tensor of bytes, `first` its first row; its elements are 10 first, 10 first + 1, ...
  std::string write(const std::string& file, const std::string& name, Shape shape, std::optional<int> first = {}) {
    const std::array entry = {
        SafetensorsEntry{.name = name, .dtype_name = "U8", .dtype = Dtype::UInt8, .shape = shape}};
    std::vector<std::pair<std::string, std::string>> metadata;
    if (first) {
      metadata.emplace_back("DCP_SHARDING_INFO",
                            "{\"" + name + "\": {\"saved_offsets\": [" + std::to_string(*first) + ", 0]}}");
    }
    std::string bytes = safetensors_header_text(entry, metadata);
    for (std::int64_t i = 0; i < num_elements(shape); ++i) bytes += static_cast<char>(10 * first.value_or(0) + i);
    write_text(file, bytes);
    return path(file);
  }
  void write_text(const std::string& file, const std::string& text) {
    std::ofstream(path(file), std::ios::binary) << text;
  }
  std::string path(const std::string& file) const { return (folder_ / file).string(); }

  std::filesystem::path folder_;
};

TEST_F(StoredTensorsTest, RowsInSeveralFilesAreReadAsOneTensor) {
  // Rows of two: file 1 has row 0 (0 1), file 2 has rows 1 and 2 (10 11 12 13).
  write("2.safetensors", "a", {2, 2}, 1);
  write("1.safetensors", "a", {1, 2}, 0);
  const auto stored = read_stored_tensors({folder_.string()});
  ASSERT_TRUE(stored) << to_string(stored.error()[0]);
  const StoredTensor* tensor = stored->find("a");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (Shape{3, 2}));
  StoredReader reader(*stored);
  std::array<std::uint8_t, 4> middle{};
  ASSERT_TRUE(reader.read(*tensor, 1, 4, middle.data()));
  EXPECT_EQ(middle, (std::array<std::uint8_t, 4>{1, 10, 11, 12}));
  EXPECT_EQ(stored->find("b"), nullptr);
}

TEST_F(StoredTensorsTest, IndexListsItsFiles) {
  write("x.safetensors", "a", {2});
  write("y.safetensors", "b", {2});
  write("not-named.safetensors", "c", {2});
  write_text("model.safetensors.index.json",
             R"({"metadata": {}, "weight_map": {"a": "x.safetensors", "b": "y.safetensors"}})");
  for (const std::string& named : {folder_.string(), path("model.safetensors.index.json")}) {
    const auto stored = read_stored_tensors({named});
    ASSERT_TRUE(stored) << to_string(stored.error()[0]);
    EXPECT_EQ(stored->tensors.size(), 2U);
  }
}

TEST_F(StoredTensorsTest, WrongIndexIsDetected) {
  write("x.safetensors", "a", {2});
  write_text(
      "model.safetensors.index.json",
      R"({"weight_map": {"a": "x.safetensors", "b": "x.safetensors", "c": "gone.safetensors", "d": "../x.safetensors"}})");
  auto stored = read_stored_tensors({folder_.string()});
  ASSERT_FALSE(stored);
  std::string said;
  for (const Error& error : stored.error()) said += to_string(error) + "\n";
  EXPECT_NE(said.find("gone.safetensors: The file is missing"), std::string::npos) << said;
  EXPECT_NE(said.find("This is not the name of a file"), std::string::npos) << said;

  write_text("model.safetensors.index.json", R"({"weight_map": {"a": "x.safetensors", "b": "x.safetensors"}})");
  stored = read_stored_tensors({folder_.string()});
  ASSERT_FALSE(stored);
  EXPECT_NE(to_string(stored.error()[0]).find("no tensor \"b\""), std::string::npos);
}

TEST_F(StoredTensorsTest, EveryBadFileIsReported) {
  write_text("bad.safetensors", "too short");
  write_text("worse.safetensors", "");
  const auto stored =
      read_stored_tensors({path("bad.safetensors"), path("worse.safetensors"), path("none.safetensors")});
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().size(), 3U);
}

TEST_F(StoredTensorsTest, MissingFileOfSeveralIsReported) {
  write("2.safetensors", "a", {2, 2}, 1);
  const auto stored = read_stored_tensors({folder_.string()});
  ASSERT_FALSE(stored);
  EXPECT_NE(stored.error()[0].what.find("No file has the rows"), std::string::npos);
}

TEST_F(StoredTensorsTest, AFileThatShrinksWhileItIsReadIsAnError) {
  write("1.safetensors", "a", {64});
  const auto stored = read_stored_tensors({folder_.string()});
  ASSERT_TRUE(stored);
  std::filesystem::resize_file(path("1.safetensors"), 80);
  StoredReader reader(*stored);
  std::array<std::uint8_t, 64> all{};
  const auto read = reader.read(stored->tensors[0], 0, 64, all.data());
  ASSERT_FALSE(read);
  EXPECT_NE(read.error()[0].what.find("shorter"), std::string::npos);
}

}  // namespace
}  // namespace fsdp

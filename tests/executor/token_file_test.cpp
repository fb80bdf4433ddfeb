#include "executor/training/token_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::executor {
namespace {

template <class Id>
std::string bytes_of(const std::vector<Id>& ids) {
  return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id));
}

std::vector<std::int64_t> list_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

class TokenFileTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/tokens." + testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string& write(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }

  Result<std::shared_ptr<TokenFile>> open(const std::string& path, std::optional<std::string> dtype = {}) const {
    TokenSource source;
    source.files = {path};
    source.dtype = std::move(dtype);
    return TokenFile::open(source, shape_);
  }

  std::string path_;
  TokenShape shape_{.batch = 1, .seq = 2, .vocabulary = 1000, .shifts = true};
};

TEST_F(TokenFileTest, SamplesFollowEachOtherAndRepeat) {
  const auto file = open(write(bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6, 7})));
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->samples(), 3);  // 7 is left over
  EXPECT_EQ(list_of((*file)->tokens(0, false)), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(list_of((*file)->tokens(2, false)), (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(list_of((*file)->tokens(3, false)), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(TokenFileTest, NextTokenLabelsNeedOneMoreToken) {
  shape_.shifts = false;
  const auto file = open(write(bytes_of<std::uint16_t>({1, 2, 3, 4})));
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->samples(), 1);
  EXPECT_EQ(list_of((*file)->tokens(0, true)), (std::vector<std::int64_t>{2, 3}));
}

TEST_F(TokenFileTest, RawIdsHaveTheTypeThatTheirVocabularyNeeds) {
  shape_.vocabulary = 70000;
  const auto wide = open(write(bytes_of<std::int32_t>({1, 69999})));
  ASSERT_TRUE(wide);
  EXPECT_EQ(list_of((*wide)->tokens(0, false)), (std::vector<std::int64_t>{1, 69999}));
  const auto given = open(write(bytes_of<std::int64_t>({7, 8})), "int64");
  ASSERT_TRUE(given);
  EXPECT_EQ(list_of((*given)->tokens(0, false)), (std::vector<std::int64_t>{7, 8}));
}

// As numpy.save(file, numpy.array([5, 6], "<u2")) writes it: 128 bytes of header.
TEST_F(TokenFileTest, NumpyFileStatesItsType) {
  std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }";
  header.resize(117, ' ');
  header += '\n';
  const std::string magic("\x93NUMPY\x01\x00\x76\x00", 10);
  shape_.vocabulary = 70000;
  const auto file = open(write(magic + header + bytes_of<std::uint16_t>({5, 6})));
  ASSERT_TRUE(file);
  EXPECT_EQ(list_of((*file)->tokens(0, false)), (std::vector<std::int64_t>{5, 6}));
}

TEST_F(TokenFileTest, IdOutsideTheVocabularyIsReportedWithItsPlace) {
  const auto file = open(write(bytes_of<std::uint16_t>({1, 2, 3, 1000})));
  ASSERT_TRUE(file);
  EXPECT_NO_THROW((*file)->tokens(0, false));
  try {
    (*file)->tokens(1, false);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("1000"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find('3'), std::string::npos) << error.what();
  }
}

// A log that is rotated, or a second program that writes it.
TEST_F(TokenFileTest, FileThatShrinksIsReported) {
  const auto file = open(write(bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6})));
  ASSERT_TRUE(file);
  std::filesystem::resize_file(path_, 7);
  EXPECT_EQ(list_of((*file)->tokens(0, false)), (std::vector<std::int64_t>{1, 2}));
  for (const bool are_labels : {false, true}) {
    try {
      (*file)->tokens(1, are_labels);
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), path_ + ": the file has become shorter: it had 6 ids, and now ends before id 4");
    }
  }
}

TEST_F(TokenFileTest, AFileThatEndsInsideAnIdIsRefused) {
  const auto file = open(write(bytes_of<std::uint16_t>({1, 2, 3}) + "x"));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().front().what, "It has 7 bytes of ids, which is no whole number of uint16, 2 bytes each.");
}

TEST_F(TokenFileTest, TokenAfterADocumentIsNotPredicted) {
  TokenSource source;
  source.files = {write(bytes_of<std::uint16_t>({9, 2, 9, 4, 5, 6}))};
  source.document_end = 9;
  const auto file = TokenFile::open(source, shape_);
  ASSERT_TRUE(file);
  EXPECT_EQ(list_of((*file)->tokens(0, true)), (std::vector<std::int64_t>{9, -100}));
  EXPECT_EQ(list_of((*file)->tokens(1, true)), (std::vector<std::int64_t>{9, -100}));
  EXPECT_EQ(list_of((*file)->tokens(2, true)), (std::vector<std::int64_t>{5, 6}));
}

TEST_F(TokenFileTest, AFileWithoutASampleIsRefused) {
  EXPECT_FALSE(open(write(bytes_of<std::uint16_t>({1}))));
  EXPECT_FALSE(open(write("")));
  EXPECT_FALSE(open("/nonexistent/tokens"));
}

}  // namespace
}  // namespace fsdp::executor

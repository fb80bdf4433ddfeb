#include "executor/token_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
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

  std::string path_;
  TokenShape shape_{.batch = 1, .seq = 2, .vocabulary = 1000, .shifts = true};
};

TEST_F(TokenFileTest, SamplesLieOneBehindTheOtherAndBeginAgain) {
  const auto file = TokenFile::open(write(bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6, 7})), std::nullopt, shape_);
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->samples(), 3);  // 7 is left over
  EXPECT_EQ(list_of((*file)->tokens(0, false)), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(list_of((*file)->tokens(2, false)), (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(list_of((*file)->tokens(3, false)), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(TokenFileTest, NextTokensTakeOneMore) {
  shape_.shifts = false;
  const auto file = TokenFile::open(write(bytes_of<std::uint16_t>({1, 2, 3, 4})), std::nullopt, shape_);
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->samples(), 1);
  EXPECT_EQ(list_of((*file)->tokens(0, true)), (std::vector<std::int64_t>{2, 3}));
}

TEST_F(TokenFileTest, RawIdsHaveTheTypeThatTheirVocabularyNeeds) {
  shape_.vocabulary = 70000;
  const auto wide = TokenFile::open(write(bytes_of<std::int32_t>({1, 69999})), std::nullopt, shape_);
  ASSERT_TRUE(wide);
  EXPECT_EQ(list_of((*wide)->tokens(0, false)), (std::vector<std::int64_t>{1, 69999}));
  const auto given = TokenFile::open(write(bytes_of<std::int64_t>({7, 8})), "int64", shape_);
  ASSERT_TRUE(given);
  EXPECT_EQ(list_of((*given)->tokens(0, false)), (std::vector<std::int64_t>{7, 8}));
}

// As numpy.save(file, numpy.array([5, 6], "<u2")) writes it: 128 bytes of header.
TEST_F(TokenFileTest, ANumpyFileSaysItsTypeItself) {
  std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }";
  header.resize(117, ' ');
  header += '\n';
  const std::string magic("\x93NUMPY\x01\x00\x76\x00", 10);
  shape_.vocabulary = 70000;
  const auto file = TokenFile::open(write(magic + header + bytes_of<std::uint16_t>({5, 6})), std::nullopt, shape_);
  ASSERT_TRUE(file);
  EXPECT_EQ(list_of((*file)->tokens(0, false)), (std::vector<std::int64_t>{5, 6}));
}

TEST_F(TokenFileTest, AnIdOutsideTheVocabularyIsFoundAtItsPlace) {
  const auto file = TokenFile::open(write(bytes_of<std::uint16_t>({1, 2, 3, 1000})), std::nullopt, shape_);
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

TEST_F(TokenFileTest, AFileWithoutASampleIsRefused) {
  EXPECT_FALSE(TokenFile::open(write(bytes_of<std::uint16_t>({1})), std::nullopt, shape_));
  EXPECT_FALSE(TokenFile::open(write(""), std::nullopt, shape_));
  EXPECT_FALSE(TokenFile::open("/nonexistent/tokens", std::nullopt, shape_));
}

}  // namespace
}  // namespace fsdp::executor

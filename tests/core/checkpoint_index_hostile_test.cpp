// The index of a checkpoint, whole and broken: it is read as it was written, or refused.

#include "core/formats/checkpoint_index.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace fsdp {
namespace {

class CheckpointIndexTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("checkpoint_index_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    index_.model = "Llama \"small\"";
    index_.model_fingerprint = "0123";
    index_.step = 12;
    index_.micro_batches = 96;
    index_.seed = -1;
    index_.hyperparameters = {.learning_rate = 0.1, .schedule = RateSchedule::Cosine, .warmup_steps = 3};
    index_.optimizer = OptimizerKind::Sgd;
    index_.mesh = {2, 4};
    index_.files = {{"model/a.safetensors", 3, 0x352441c2}};  // "abc", by zlib.
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text) { std::ofstream(folder_ / kCheckpointIndexName, std::ios::binary) << text; }

  std::filesystem::path folder_;
  CheckpointIndex index_;
};

TEST_F(CheckpointIndexTest, ReadsBackAsWritten) {
  write(to_json(index_));
  const auto read = read_checkpoint_index(folder_.string());
  ASSERT_TRUE(read) << to_string(read.error()[0]);
  EXPECT_EQ(*read, index_);
}

TEST_F(CheckpointIndexTest, TruncationAtAnyByteIsRefused) {
  const std::string good = to_json(index_);
  // Blanks after the last brace mean nothing.
  for (std::size_t size = 0; size < good.rfind('}'); ++size) {
    write(good.substr(0, size));
    EXPECT_FALSE(read_checkpoint_index(folder_.string())) << size;
  }
}

TEST_F(CheckpointIndexTest, AnyChangedByteIsRefusedOrHarmless) {
  const std::string good = to_json(index_);
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {1, 64}) {
      std::string changed = good;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      write(changed);
      const auto read = read_checkpoint_index(folder_.string());
      if (read) {
        EXPECT_EQ(*read, index_) << at;
      }
    }
  }
}

TEST_F(CheckpointIndexTest, NamesOutsideTheFolderAreRefused) {
  for (const char* name : {"/etc/passwd", "../a", "model/../../a", "", "model//"}) {
    index_.files[0].name = name;
    write(to_json(index_));
    EXPECT_FALSE(read_checkpoint_index(folder_.string())) << name;
  }
}

TEST_F(CheckpointIndexTest, FilesAreComparedBySizeAndChecksum) {
  std::filesystem::create_directories(folder_ / "model");
  const auto put = [&](const std::string& text) { std::ofstream(folder_ / "model/a.safetensors") << text; };
  put("abc");
  EXPECT_TRUE(check_files(index_, folder_.string()).empty());
  EXPECT_TRUE(verify_file(index_.files[0], folder_.string()));
  put("abd");
  EXPECT_TRUE(check_files(index_, folder_.string()).empty());
  ASSERT_FALSE(verify_file(index_.files[0], folder_.string()));
  put("abcd");
  EXPECT_EQ(check_files(index_, folder_.string()).size(), 1U);
  std::filesystem::remove(folder_ / "model/a.safetensors");
  EXPECT_EQ(check_files(index_, folder_.string()).size(), 1U);
  EXPECT_FALSE(verify_file(index_.files[0], folder_.string()));
}

TEST_F(CheckpointIndexTest, OnlyWholeCheckpointsAreListed) {
  for (const char* name : {"step-00000010", "step-00000002", "step-2", "step-00000011", ".step-00000012.partial"}) {
    std::filesystem::create_directories(folder_ / name);
    if (std::string(name) != "step-00000011") std::ofstream(folder_ / name / kCheckpointIndexName) << "{}";
  }
  EXPECT_EQ(checkpoint_steps(folder_.string()), (std::vector<std::int64_t>{2, 10}));
  const auto read = read_checkpoint_index(folder_.string());
  ASSERT_FALSE(read);
  EXPECT_NE(read.error()[0].hint.find("step-00000010"), std::string::npos);
  EXPECT_TRUE(checkpoint_steps((folder_ / "none").string()).empty());
}

}  // namespace
}  // namespace fsdp

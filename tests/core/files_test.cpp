#include "core/base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/json_document.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "fsdp_files_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void put(const std::string& name, const std::string& content) const { std::ofstream(path(name)) << content; }
  std::string get(const std::string& name) const { return read_text_file(path(name)).value_or("(none)"); }

  /// The message of a result, with the folder's name, which differs from run to run, taken out.
  template <class T>
  std::string message(const Result<T>& result) const {
    if (result) return "good";
    std::string text = to_string(result.error().front());
    for (std::size_t at; (at = text.find(folder_)) != std::string::npos;) text.replace(at, folder_.size(), "DIR");
    return text;
  }
  std::string read_message(const std::string& name) const { return message(read_text_file(path(name))); }
  std::string write_message(const std::string& name, Overwrite overwrite = Overwrite::Refuse) const {
    return message(write_file_atomically(path(name), "new", overwrite));
  }
  std::size_t num_files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_;
};

TEST_F(Files, MissingFileErrorSuggestsTheNearestName) {
  put("qwen3_tts.json", "{}");
  EXPECT_EQ(read_message("qwen3_tt.json"),
            "DIR/qwen3_tt.json: There is no such file. Did you mean \"DIR/qwen3_tts.json\"?");
  EXPECT_EQ(read_message("xyz"), "DIR/xyz: There is no such file. Check the path.");
  EXPECT_EQ(read_message("no/xyz"), "DIR/no/xyz: There is no such file. The folder \"DIR/no\" does not exist either.");
  EXPECT_EQ(read_message("qwen3_tts.json/x"),
            "DIR/qwen3_tts.json/x: There is no such file. The folder \"DIR/qwen3_tts.json\" does not exist either.");
}

TEST_F(Files, UnreadableTextIsReportedByCause) {
  put("empty.json", "");
  put("lfs.json", "version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 12\n");
  put("huge.json", "x");
  fs::resize_file(path("huge.json"), kLargestJsonText + 1);
  EXPECT_EQ(message(read_text_file(folder_)), "DIR: This is a folder, not a file. Name a file in it.");
  EXPECT_EQ(read_message("empty.json"), "DIR/empty.json: The file is empty.");
  EXPECT_EQ(read_message("lfs.json"),
            "DIR/lfs.json: This is a Git LFS pointer, not the file itself. Fetch the file with \"git lfs pull\".");
  EXPECT_EQ(read_message("huge.json"),
            "DIR/huge.json: The file has more than 64 MiB. No file that this program reads is that large.");
  EXPECT_EQ(message(read_text_file("/dev/zero")),
            "/dev/zero: The file has more than 64 MiB. No file that this program reads is that large.");
}

TEST_F(Files, MissingReadPermissionIsReported) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  put("secret.json", "{}");
  fs::permissions(path("secret.json"), fs::perms::none);
  EXPECT_EQ(read_message("secret.json"), "DIR/secret.json: The file cannot be read: Permission denied.");
}

TEST_F(Files, ErrorsOfAJsonFileStartWithItsPath) {
  put("bad.json", "{\n  \"a\": ]\n}");
  EXPECT_EQ(message(read_json_file(path("bad.json"))), "DIR/bad.json:2:8: Expected a value, found ']'.");
}

TEST_F(Files, WriteLeavesNoOtherFile) {
  EXPECT_EQ(write_message("plan.json"), "good");
  EXPECT_EQ(get("plan.json"), "new");
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(Files, OverwritesOnlyWhenAllowed) {
  put("plan.json", "old");
  EXPECT_EQ(write_message("plan.json"),
            "DIR/plan.json: The file exists. Choose another name, or overwrite it with --force.");
  EXPECT_EQ(get("plan.json"), "old");
  EXPECT_EQ(write_message("plan.json", Overwrite::Allow), "good");
  EXPECT_EQ(get("plan.json"), "new");
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(Files, WriteKeepsPermissionsOrObeysTheUmask) {
  put("plan.json", "old");
  ASSERT_EQ(chmod(path("plan.json").c_str(), 0640), 0);
  EXPECT_EQ(write_message("plan.json", Overwrite::Allow), "good");
  const auto mode_of = [&](const std::string& name) {
    struct stat info {};
    EXPECT_EQ(stat(path(name).c_str(), &info), 0);
    return info.st_mode & 0777;
  };
  EXPECT_EQ(mode_of("plan.json"), 0640U);
  const mode_t before = umask(027);
  EXPECT_EQ(write_message("other.json"), "good");
  umask(before);
  EXPECT_EQ(mode_of("other.json"), 0640U);
}

TEST_F(Files, WriteFollowsASymbolicLink) {
  put("target.json", "old");
  fs::create_symlink("target.json", path("link.json"));
  EXPECT_EQ(write_message("link.json", Overwrite::Allow), "good");
  EXPECT_TRUE(fs::is_symlink(path("link.json")));
  EXPECT_EQ(get("target.json"), "new");
}

TEST_F(Files, DoesNotReplaceADeviceByAFile) {
  EXPECT_TRUE(write_file_atomically("/dev/null", "new", Overwrite::Refuse));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(Files, APipeIsWrittenToAndStaysAPipe) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_EQ(write_message("pipe"), "good");
  std::string got(8, '\0');
  EXPECT_EQ(read(reader, got.data(), got.size()), 3);
  close(reader);
  EXPECT_EQ(got.substr(0, 3), "new");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(Files, FolderAsTargetAndMissingFolderAreReported) {
  fs::create_directory(path("sub"));
  EXPECT_EQ(write_message("sub", Overwrite::Allow), "DIR/sub: This is a folder, not a file. Name a file in it.");
  EXPECT_EQ(write_message("no/plan.json"), "DIR/no/plan.json: The folder \"DIR/no\" does not exist. Create it first.");
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(Files, AFullDiskIsReported) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(message(write_file_atomically("/dev/full", "new", Overwrite::Allow)),
            "/dev/full: The file cannot be written: No space left on device. Nothing was changed. Choose another place "
            "with -o.");
}

TEST_F(Files, NamedPipeWithoutAWriterDoesNotBlock) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_message("pipe"),
            "DIR/pipe: This is a named pipe without a writer. Name a file, or - for the standard input.");
}

TEST_F(Files, NamedPipeWithAWriterIsRead) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  // A reader of the test's own keeps what is written until the file is read, however the two threads are scheduled.
  const int keeper = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  const int writer = open(path("pipe").c_str(), O_WRONLY);
  ASSERT_GE(keeper, 0);
  ASSERT_GE(writer, 0);
  std::string text;
  std::thread reader([&] { text = get("pipe"); });
  EXPECT_EQ(write(writer, "one line\n", 9), 9);
  close(writer);
  reader.join();
  close(keeper);
  EXPECT_EQ(text, "one line\n");
}

TEST_F(Files, BrokenLinkErrorNamesItsTarget) {
  fs::create_symlink("gone.json", path("link.json"));
  EXPECT_EQ(read_message("link.json"),
            "DIR/link.json: There is no such file. It is a link to \"gone.json\", which does not exist.");
}

TEST_F(Files, FolderOfAHuggingFaceModelIsRecognized) {
  fs::create_directory(path("hub"));
  put("hub/config.json", "{}");
  EXPECT_EQ(read_message("hub"),
            "DIR/hub: This is a folder, not a file. It looks like a model of Hugging Face, which is named as a model: "
            "fsdp-plan FOLDER --gpus 4 --mem 16G.");
}

}  // namespace
}  // namespace fsdp

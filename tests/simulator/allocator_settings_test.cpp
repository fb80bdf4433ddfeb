#include "simulator/allocator/allocator_settings.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace fsdp::simulator {
namespace {

using namespace fsdp::literals;

AllocatorSettings read(std::string_view text, const AllocatorSettings& current = {}) {
  const Result<AllocatorSettings> settings = parse_allocator_settings(text, current);
  EXPECT_TRUE(settings) << text << ": " << (settings ? "" : to_string(settings.error().front()));
  return settings.value_or(AllocatorSettings{});
}

Errors errors_of_settings(std::string_view text, const AllocatorSettings& current = {}) {
  const Result<AllocatorSettings> settings = parse_allocator_settings(text, current);
  return settings ? Errors{} : settings.error();
}

TEST(AllocatorSettings, EmptyStringGivesTheDefaults) {
  EXPECT_EQ(read(""), AllocatorSettings{});
}

TEST(AllocatorSettings, ReadEveryKeyOfPyTorch) {
  AllocatorSettings expected{.large_segment_size = 32_MiB,
                             .max_split_size = 512_MiB,
                             .max_non_split_rounding_size = 64_MiB,
                             .garbage_collection_threshold = 0.8,
                             .expandable_segments = true,
                             .per_process_memory_fraction = 0.9,
                             .release_lock_on_cudamalloc = true,
                             .graph_capture_record_stream_reuse = true,
                             .pinned_use_cuda_host_register = true,
                             .pinned_use_background_threads = true,
                             .pinned_num_register_threads = 8,
                             .pinned_reserve_segment_size_mb = 16};
  expected.roundup_power2_divisions.fill(8);
  EXPECT_EQ(read("backend:native, large_segment_size_mb:32, max_split_size_mb:512, max_non_split_rounding_mb:64, "
                 "garbage_collection_threshold:0.8, expandable_segments:True, per_process_memory_fraction:0.9, "
                 "release_lock_on_cudamalloc:True, graph_capture_record_stream_reuse:True, "
                 "pinned_use_cuda_host_register:True, pinned_use_background_threads:True, "
                 "pinned_num_register_threads:8, pinned_reserve_segment_size_mb:16, roundup_power2_divisions:8"),
            expected);
}

TEST(AllocatorSettings, ReadTheListOfDivisions) {
  // Below the first key its value; after the last key that of ">"; between two keys nothing.
  const AllocatorSettings settings = read("roundup_power2_divisions:[64:8,256:4,1024:2,>:1]");
  EXPECT_EQ(settings.roundup_power2_divisions,
            (std::array<std::int64_t, 16>{8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 2, 1, 1, 1, 1, 1}));
  // Intervals above 32 GiB share the last entry, and a key may come after ">".
  EXPECT_EQ(read("roundup_power2_divisions:[>:4,131072:2]").roundup_power2_divisions,
            (std::array<std::int64_t, 16>{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}));
}

TEST(AllocatorSettings, ChangeResetsThreeKeysThatItDoesNotName) {
  const AllocatorSettings start = read(
      "expandable_segments:True,large_segment_size_mb:24,max_split_size_mb:100,garbage_collection_threshold:0.5,"
      "roundup_power2_divisions:4");
  const AllocatorSettings expected{
      .large_segment_size = 24_MiB, .max_non_split_rounding_size = 24_MiB, .expandable_segments = true};
  EXPECT_EQ(read("", start), expected);
}

TEST(AllocatorSettings, TheLastOfRepeatedKeysWinsAndACommaMayEndTheString) {
  EXPECT_EQ(read("max_split_size_mb:32,max_split_size_mb:64,").max_split_size, 64_MiB);
}

TEST(AllocatorSettings, SegmentSizeLimitsTheSplitSizeInAnyOrder) {
  EXPECT_EQ(errors_of_settings("max_split_size_mb:30,large_segment_size_mb:40"),
            (Errors{{"PYTORCH_ALLOC_CONF: max_split_size_mb", "Found \"30\".",
                     "Write a whole number of MiB from 40 (the size of a large segment) up."}}));
  EXPECT_EQ(read("max_split_size_mb:40,large_segment_size_mb:40").max_split_size, 40_MiB);
  EXPECT_EQ(errors_of_settings("max_split_size_mb:30", {.large_segment_size = 40_MiB}).size(), 1U);
}

struct BadString {
  std::string text;
  Error error;
};

class BadSettings : public testing::TestWithParam<BadString> {};

TEST_P(BadSettings, NameFoundAndAllowedValues) {
  EXPECT_EQ(errors_of_settings(GetParam().text), Errors{GetParam().error}) << GetParam().text;
}

constexpr const char* kSplitHint = "Write a whole number of MiB from 20 (the size of a large segment) up.";
constexpr const char* kListHint =
    "Write interval:divisions, such as 256:4 or >:8. The interval is a power of two in MiB, or \">\" for all above the "
    "last one; the divisions are a power of two, or 0 for none.";

Error bad(const std::string& key, std::string what, std::string hint) {
  return {"PYTORCH_ALLOC_CONF: " + key, std::move(what), std::move(hint)};
}

INSTANTIATE_TEST_SUITE_P(
    AllocatorSettings, BadSettings,
    testing::Values(
        BadString{
            "expandable_segment:True",
            {"PYTORCH_ALLOC_CONF", "Unknown key \"expandable_segment\".", "Did you mean \"expandable_segments\"?"}},
        BadString{"max_split_size_mb:10", bad("max_split_size_mb", "Found \"10\".", kSplitHint)},
        BadString{"max_split_size_mb:-1", bad("max_split_size_mb", "Found \"-1\".", kSplitHint)},
        BadString{"max_split_size_mb:1e3", bad("max_split_size_mb", "Found \"1e3\".", kSplitHint)},
        BadString{"max_split_size_mb:99999999999999999999",
                  bad("max_split_size_mb", "Found \"99999999999999999999\".", kSplitHint)},
        BadString{"max_split_size_mb", bad("max_split_size_mb", "Found no value.", kSplitHint)},
        BadString{"max_split_size_mb:32:3", bad("max_split_size_mb", "Found \"32:3\".", kSplitHint)},
        BadString{"max_non_split_rounding_mb:19", bad("max_non_split_rounding_mb", "Found \"19\".", kSplitHint)},
        BadString{"large_segment_size_mb:10", bad("large_segment_size_mb", "Found \"10\".",
                                                  "Write a whole number of MiB above 10, up to 1048576.")},
        BadString{"large_segment_size_mb:11,expandable_segments:True",
                  bad("large_segment_size_mb", "Found 11 together with expandable_segments:True.",
                      "Write an even number: the driver maps memory in pages of 2 MiB.")},
        BadString{"garbage_collection_threshold:1.0", bad("garbage_collection_threshold", "Found \"1.0\".",
                                                          "Write a number above 0 and below 1, such as 0.8.")},
        BadString{"garbage_collection_threshold:nan", bad("garbage_collection_threshold", "Found \"nan\".",
                                                          "Write a number above 0 and below 1, such as 0.8.")},
        BadString{"per_process_memory_fraction:1.5",
                  bad("per_process_memory_fraction", "Found \"1.5\".", "Write a number from 0 to 1, such as 0.9.")},
        BadString{"expandable_segments:true", bad("expandable_segments", "Found \"true\".", "Write True or False.")},
        BadString{"backend:cudaMallocAsync",
                  bad("backend", "Found \"cudaMallocAsync\".",
                      "Write native: the other backend is an allocator of the driver, which is not modeled.")},
        BadString{"backend:fast", bad("backend", "Found \"fast\".", "Write native.")},
        BadString{"pinned_num_register_threads:3",
                  bad("pinned_num_register_threads", "Found \"3\".", "Write a power of two from 1 to 128.")},
        BadString{"pinned_reserve_segment_size_mb:0",
                  bad("pinned_reserve_segment_size_mb", "Found \"0\".", "Write a whole number of MiB above 0.")},
        BadString{"roundup_power2_divisions:3",
                  bad("roundup_power2_divisions", "Found \"3\".",
                      "Write a power of two, such as 8, or a list, such as [256:1,512:2,>:4].")},
        BadString{"roundup_power2_divisions:[64:8",
                  bad("roundup_power2_divisions", "Found \"[64:8\".", "Close the list with \"]\".")},
        BadString{"roundup_power2_divisions:[3:8]",
                  bad("roundup_power2_divisions", "Found \"3:8\" in the list.", kListHint)},
        BadString{"roundup_power2_divisions:[64:8,256]",
                  bad("roundup_power2_divisions", "Found \"256\" in the list.", kListHint)}));

TEST(AllocatorSettings, ReportAllProblemsInOneGo) {
  // A key of a newer PyTorch is unknown to 2.11 as well.
  const Errors errors =
      errors_of_settings("max_split_size_mb:1,throw_on_cudamalloc_oom:True,expandable_segments:1,backend:x");
  ASSERT_EQ(errors.size(), 4U);
  EXPECT_EQ(errors[0].where, "PYTORCH_ALLOC_CONF: max_split_size_mb");
  EXPECT_EQ(errors[1].what, "Unknown key \"throw_on_cudamalloc_oom\".");
  EXPECT_EQ(errors[2].where, "PYTORCH_ALLOC_CONF: expandable_segments");
  EXPECT_EQ(errors[3].where, "PYTORCH_ALLOC_CONF: backend");
}

RC_GTEST_PROP(AllocatorSettings, AnyStringIsReadOrRefusedWithoutACrash, ()) {
  static constexpr std::string_view kPieces[] = {"max_split_size_mb",
                                                 "roundup_power2_divisions",
                                                 "expandable_segments",
                                                 "large_segment_size_mb",
                                                 "[",
                                                 "]",
                                                 ":",
                                                 ",",
                                                 ">",
                                                 "True",
                                                 "64",
                                                 "-1",
                                                 "0.5",
                                                 "9223372036854775808",
                                                 " ",
                                                 "x"};
  std::string text;
  for (const int piece : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 16))) text += kPieces[piece];
  const Result<AllocatorSettings> settings = parse_allocator_settings(text);
  if (!settings) {
    RC_ASSERT(!settings.error().empty());
  } else {
    RC_ASSERT(settings->large_segment_size > 10_MiB);
    RC_ASSERT(settings->max_split_size >= settings->large_segment_size);
  }
}

}  // namespace
}  // namespace fsdp::simulator

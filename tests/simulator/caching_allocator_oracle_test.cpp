// The model of the caching allocator against the original, libc10_cuda.so of the PyTorch beside the build, over a
// stand-in for the CUDA runtime. FSDP_ALLOCATOR_TRACES says how many traces are drawn, FSDP_ALLOCATOR_SEED from where.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/allocator_any_trace.h"
#include "tests/support/allocator_difference.h"
#include "tests/support/allocator_real.h"

namespace fsdp::simulator {
namespace {

using Kind = AllocatorDifference::Kind;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string library_of(const char* symbol) {
  Dl_info info{};
  if (::dladdr(::dlsym(RTLD_DEFAULT, symbol), &info) == 0) return "nowhere";
  return std::filesystem::path(info.dli_fname).filename().string();
}

TEST(RealAllocator, IsPyTorchsAndCallsOnlyTheFakeRuntime) {
  EXPECT_EQ(library_of("_ZN3c104cuda9_internal20setHasPrimaryContextEPFbaE"), "libc10_cuda.so");
  EXPECT_EQ(library_of("cudaMalloc"), library_of("fsdp_fake_calls"));
  std::ifstream maps("/proc/self/maps");
  const std::string mapped{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_EQ(mapped.find("libcuda.so"), std::string::npos);
}

TEST(RealAllocator, AgreesWithTheModelAfterEveryStepOfEveryTrace) {
  const std::uint64_t first = number_from("FSDP_ALLOCATOR_SEED", 1);
  const std::uint64_t num_traces = number_from("FSDP_ALLOCATOR_TRACES", 2000);
  std::int64_t num_steps = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_retries = 0;
  std::uint64_t num_stopped = 0;
  for (std::uint64_t seed = first; seed < first + num_traces; ++seed) {
    const AllocatorTrace trace = any_trace(seed);
    const AllocatorDifference difference = difference_of(trace);
    num_steps += difference.num_steps;
    num_ooms += difference.num_ooms;
    num_retries += difference.num_retries;
    num_stopped += difference.kind == Kind::OriginalStopped ? 1 : 0;
    if (difference.kind != Kind::Differs) continue;
    const AllocatorTrace shortest = shortest_with_difference(trace);
    FAIL() << "seed " << seed << ", " << difference.text << "shortened to " << shortest.steps.size() << " steps, "
           << difference_of(shortest).text << "used by others: " << trace.device.used_by_others.count() << "\n"
           << to_text(shortest);
  }
  std::printf(
      "%llu traces, %lld steps compared; %lld requests refused, %lld retries; the original stopped %llu times\n",
      static_cast<unsigned long long>(num_traces), static_cast<long long>(num_steps), static_cast<long long>(num_ooms),
      static_cast<long long>(num_retries), static_cast<unsigned long long>(num_stopped));
  // The traces are of use only where something happens in them.
  EXPECT_GT(num_steps, static_cast<std::int64_t>(100 * num_traces));
  EXPECT_GT(num_ooms, static_cast<std::int64_t>(num_traces));
  EXPECT_GT(num_retries, num_ooms);
  EXPECT_LE(num_stopped, num_traces / 100);
}

TEST(RealAllocator, GivesTheGoldenTracesAgain) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden/allocator")) {
    if (entry.path().extension() != ".txt") continue;
    ++num_files;
    std::ifstream in(entry.path());
    const std::string golden{std::istreambuf_iterator<char>(in), {}};
    const Result<AllocatorTrace> trace = read_allocator_trace(golden, entry.path().filename().string());
    ASSERT_TRUE(trace) << to_string(trace.error().front());
    const AllocatorDifference difference = difference_of(*trace);
    EXPECT_EQ(difference.kind, Kind::None) << entry.path().filename() << ": " << difference.text;
    EXPECT_EQ(difference.num_steps, static_cast<std::int64_t>(trace->steps.size()));
  }
  EXPECT_GE(num_files, 12);
}

// With FSDP_ALLOCATOR_RECORD=FILE the digests are written to that file first.
TEST(RealAllocator, GivesTheDigestsOfTheGoldenFileAgain) {
  const char* const record = std::getenv("FSDP_ALLOCATOR_RECORD");
  const std::string path = record != nullptr ? record : "tests/golden/allocator/any_trace_digests.tsv";
  if (record != nullptr) {
    std::ofstream out(path);
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
      const std::optional<std::uint64_t> digest = digest_of_original(any_trace(seed));
      if (digest) out << seed << '\t' << *digest << '\n';
    }
  }
  std::ifstream in(path);
  int num_digests = 0;
  std::uint64_t seed = 0;
  std::uint64_t digest = 0;
  while (in >> seed >> digest) {
    ++num_digests;
    if (seed % 10 != 0) continue;  // All were compared with the model already.
    EXPECT_EQ(digest_of_original(any_trace(seed)), digest) << "seed " << seed;
  }
  EXPECT_GT(num_digests, 900);
}

}  // namespace
}  // namespace fsdp::simulator

// A run whose batches differ in length, step by step, for tests in Python that hold it against the real PyTorch.
//
//   print_length_run FOLDER_OF_CLUSTERS PLAN_FILE GPU GPUS RANK DEVICE_BYTES < LENGTHS
//
// LENGTHS: that of each micro-batch, in order, between blanks. The device is that of the allocator alone. Printed is a
// line for each step
//
//   ALLOCATED RESERVED ALLOCATED_AFTER RESERVED_AFTER FLUSHES
//
// the peaks in it, the bytes at its end and the times that the cache was returned, and at the end "done", "out" if the
// last step ran out of memory, or "error TEXT".

#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "core/cluster/cluster_library.h"
#include "core/frameworks/check_plan.h"
#include "core/plan/plan_file.h"
#include "core/spec/model_spec.h"
#include "simulator/lengths/length_run.h"

namespace fsdp::simulator {
namespace {

Result<LengthRun> run(char** arguments) {
  FSDP_TRY(const ClusterLibrary library, read_cluster_library(arguments[0]));
  FSDP_TRY(const PlanFile file, read_plan_file(arguments[1]));
  FSDP_TRY(const ModelSpec spec, read_model_spec(file.plan.model_file));
  FSDP_TRY(const Gpu gpu, find_gpu(arguments[2], library.gpus, "gpu"));
  FSDP_TRY(const Cluster cluster, make_cluster(gpu, std::stoi(arguments[3]), 1));
  FSDP_TRY(const AllocatorSettings settings, parse_allocator_settings(file.plan.runtime.allocator_settings));
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 0; std::cin >> length;) lengths.push_back(length);
  RecordedLengths recorded(cluster, file.plan, std::stoll(arguments[4]));
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const bool is_first = i < 2 * static_cast<std::size_t>(file.plan.accumulation);
    Workload workload = workload_of(file.plan);
    for (Dimension& dimension : workload.dimensions) {
      if (dimension.name == "seq") dimension.value = static_cast<double>(lengths[i]);
    }
    FSDP_TRY(const Model model, build_model(spec, workload));
    if (Errors errors = check(file.plan, model); !errors.empty()) return tl::unexpected(std::move(errors));
    if (auto made = recorded.record(lengths[i], model, is_first); !made) return tl::unexpected(made.error());
  }
  LengthAllocators allocators;
  return run_lengths(recorded, lengths, settings, {.total = Bytes(std::stoll(arguments[5]))}, allocators);
}

}  // namespace
}  // namespace fsdp::simulator

int main(int count, char** arguments) {
  if (count != 7) {
    std::cerr << "Write the folder of the clusters, the plan, the GPU, the number of GPUs, the rank and the bytes of "
                 "the device.\n";
    return 2;
  }
  const auto run = fsdp::simulator::run(arguments + 1);
  if (!run) {
    for (const fsdp::Error& error : run.error()) std::cout << "error " << to_string(error) << "\n";
    return 0;
  }
  for (const fsdp::simulator::LengthStep& step : run->steps) {
    std::cout << step.allocated.count() << " " << step.reserved.count() << " " << step.allocated_after.count() << " "
              << step.reserved_after.count() << " " << step.flushes << "\n";
  }
  std::cout << (run->is_out_of_memory ? "out" : "done") << std::endl;
  return 0;
}

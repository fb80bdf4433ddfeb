// What the memory walk allocates and frees, printed for tests in Python that hold it against the real PyTorch.
//
//   print_memory_events FOLDER_OF_CLUSTERS < JOBS
//
// A job is a line `PLAN_FILE GPU GPUS RANK STEPS`, with "-" for blanks in the name of the GPU, or "CPU" for the CPU;
// the plan names the file of its model. Printed is for each job
//
//   model LENGTH, plan LENGTH        so many bytes of JSON follow: the expanded model, the plan with all of its choices
//   phase NAME                       initialization, and then forward, backward, optimizer of each step
//   alloc NUMBER BYTES STREAM WHAT   streams are those of simulator/memory/memory_sinks.h
//   free NUMBER
//   end                              or: error TEXT

#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "core/cluster/cluster_library.h"
#include "core/cluster/cpu_cluster.h"
#include "core/frameworks/check_plan.h"
#include "core/library/model_file.h"
#include "core/model/model_json.h"
#include "core/plan/plan_file.h"
#include "core/spec/model_spec.h"
#include "simulator/curves/tensor_names.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {
namespace {

struct Job {
  std::string plan_file;
  std::string gpu;
  int gpus = 1;
  int rank = 0;
  int steps = 1;
};

std::string_view phase_of(const Instruction& instruction) {
  switch (instruction.kind) {
    case InstructionKind::LoadInputs:
      return "forward";
    case InstructionKind::ClipGradNorm:
    case InstructionKind::OptimizerStep:
    case InstructionKind::ZeroGrad:
      return "optimizer";
    default:
      return instruction.phase == StepPhase::Backward ? "backward" : "forward";
  }
}

void print_text(std::string_view name, const std::string& text) {
  std::cout << name << " " << text.size() << "\n" << text;
}

void print_events(const PreparedPlan& prepared, int steps) {
  TraceSink sink;
  MemoryWalk<TraceSink> walk(prepared.walk_input(), sink);
  walk.initialize();
  for (int step = 0; step < steps; ++step) walk.step();
  std::cout << "phase initialization\n";
  std::string_view phase;
  std::size_t mark = 0;
  const std::vector<Instruction> actions = actions_of(prepared.schedule);
  for (std::size_t e = 0; e < sink.events().size(); ++e) {
    for (; mark < sink.marks().size() && sink.marks()[mark] <= e; ++mark) {
      const std::string_view now = phase_of(actions[mark % actions.size()]);
      if (now != phase) std::cout << "phase " << now << "\n";
      phase = now;
    }
    const MemoryEvent& event = sink.events()[e];
    if (event.is_free()) {
      std::cout << "free " << event.id << "\n";
    } else {
      std::cout << "alloc " << event.id << " " << event.bytes << " " << static_cast<int>(event.stream) << " "
                << tensor_name(prepared, event.id) << "\n";
    }
  }
}

Result<Cluster> machines_of(const Job& job, const ClusterLibrary& library) {
  if (job.gpu == "CPU") return cpu_cluster(job.gpus, Bytes(std::int64_t{1} << 40));
  FSDP_TRY(const Gpu gpu, find_gpu(job.gpu, library.gpus, "gpu"));
  return make_cluster(gpu, job.gpus, 1);
}

Errors run(const Job& job, const ClusterLibrary& library) {
  const auto file = read_plan_file(job.plan_file);
  if (!file) return file.error();
  const Plan& plan = file->plan;
  const auto spec = read_model_file(plan.model_file);
  if (!spec) return spec.error();
  const auto model = build_model(*spec, workload_of(plan));
  if (!model) return model.error();
  const auto cluster = machines_of(job, library);
  if (!cluster) return cluster.error();
  if (Errors errors = check(plan, *model); !errors.empty()) return errors;
  const ModelIndex index = index_of(*model);
  TapeLibrary tapes(index);
  const auto prepared =
      prepare(index, *cluster, plan, mesh_costs(*cluster, plan.mesh), tapes, job.rank % plan.mesh.dp_shard());
  JsonWriter writer;
  write_plan(writer, plan, nullptr);
  print_text("model", expanded_model_text(*model));
  print_text("plan", std::move(writer).take());
  if (!prepared) return prepared.error();
  print_events(*prepared, job.steps);
  return {};
}

}  // namespace
}  // namespace fsdp::simulator

int main(int count, char** arguments) {
  using namespace fsdp::simulator;
  std::ios::sync_with_stdio(false);
  if (count != 2) {
    std::cerr << "Write the folder of the clusters.\n";
    return 2;
  }
  const auto library = fsdp::read_cluster_library(arguments[1]);
  if (!library) {
    std::cerr << to_string(library.error().front()) << "\n";
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    Job job;
    std::istringstream(line) >> job.plan_file >> job.gpu >> job.gpus >> job.rank >> job.steps;
    for (const fsdp::Error& error : run(job, *library)) std::cout << "error " << to_string(error) << "\n";
    std::cout << "end" << std::endl;
  }
  return 0;
}

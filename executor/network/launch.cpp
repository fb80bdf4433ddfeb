// The engine that started this process, and its rank. Each engine has its own variables.
//
// Sources: torch/distributed/run.py (torchrun), Open MPI's OMPI_COMM_WORLD_*, Slurm's srun(1) SLURM_*.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "core/base/parse_units.h"
#include "executor/network/collectives.h"

namespace fsdp::executor {

namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

struct Names {
  const char* engine;
  const char* rank;
  const char* world_size;
  const char* local_rank;
};
constexpr Names kEngines[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

// The first host of Slurm's short lists, where its rank 0 runs: "rack[1-2]node[03-07,12]-ib,other" is
// rack1node03-ib.
std::string first_host(const std::string& list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const std::size_t end = list.find_first_of("-,]", at);
    host += list.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    at = std::min(list.find(']', at), list.size() - 1);
  }
  return host;
}

int number(const char* name, int missing, Errors& errors) {
  const auto text = variable(name);
  if (!text) return missing;
  char* end = nullptr;
  const long value = std::strtol(text->c_str(), &end, 10);
  if (end == text->c_str() || *end != '\0' || value < 0 || value > 1 << 30) {
    errors.push_back({name, fmt::format("\"{}\" is not a number of a rank.", *text), ""});
    return missing;
  }
  return static_cast<int>(value);
}

// srun gives the hosts but no port: we derive a different port for each step of each job.
void meet_under_slurm(Launch& launch, Errors& errors) {
  constexpr int kFirstPort = 20000;
  constexpr int kPorts = 10000;
  constexpr int kStepsOfJob = 16;
  if (launch.master_address.empty()) launch.master_address = first_host(variable("SLURM_STEP_NODELIST").value_or(""));
  if (launch.master_port != 0) return;
  const std::int64_t job = number("SLURM_JOB_ID", 0, errors);
  const std::int64_t step = job * kStepsOfJob + number("SLURM_STEP_ID", 0, errors);
  launch.master_port = static_cast<int>(kFirstPort + step % kPorts);
}

/// FSDP_EXEC_RUN_ID, or the engine's name of this run, which all ranks share.
std::string run_id_of(const std::string& engine) {
  if (const auto given = variable("FSDP_EXEC_RUN_ID")) return *given;
  if (engine == "torchrun") return variable("TORCHELASTIC_RUN_ID").value_or("");
  if (engine == "mpirun") return variable("PMIX_NAMESPACE").value_or("");
  if (engine != "srun") return "";
  return variable("SLURM_JOB_ID").value_or("") + "." + variable("SLURM_STEP_ID").value_or("");
}

}  // namespace

Result<Launch> read_launch() {
  Errors errors;
  Launch launch;
  for (const Names& names : kEngines) {
    if (!variable(names.rank) || !variable(names.world_size)) continue;
    launch.engine = names.engine;
    launch.rank = number(names.rank, 0, errors);
    launch.world_size = number(names.world_size, 1, errors);
    launch.local_rank = number(names.local_rank, launch.rank, errors);
    break;
  }
  if (variable("FSDP_EXEC_STORE_FILE")) launch.engine = "fsdp-plan";
  launch.store_file = variable("FSDP_EXEC_STORE_FILE").value_or("");
  launch.master_address = variable("MASTER_ADDR").value_or("");
  launch.master_port = number("MASTER_PORT", 0, errors);
  if (launch.engine == "srun") meet_under_slurm(launch, errors);
  launch.agent_has_store = variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  launch.restart = variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
  launch.run_id = run_id_of(launch.engine);
  if (errors.empty() && (launch.world_size < 1 || launch.rank >= launch.world_size)) {
    errors.push_back({"RANK", fmt::format("Rank {} of {} does not exist.", launch.rank, launch.world_size), ""});
  }
  if (launch.world_size > 1 && launch.store_file.empty() &&
      (launch.master_address.empty() || launch.master_port == 0)) {
    errors.push_back({"MASTER_ADDR, MASTER_PORT", "They name the ranks' meeting place, and are not set.",
                      "mpirun: -x MASTER_ADDR -x MASTER_PORT."});
  }
  // A single rank meets nobody, at any port.
  if (launch.world_size == 1 && launch.master_address.empty()) launch.master_address = "127.0.0.1";
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return launch;
}

}  // namespace fsdp::executor

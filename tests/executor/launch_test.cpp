#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "executor/network/collectives.h"

namespace fsdp::executor {
namespace {

/// The variables of one engine only, while the object lives.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "FSDP_EXEC_STORE_FILE",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_STEP_NODELIST",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "TORCHELASTIC_RESTART_COUNT",
                             "TORCHELASTIC_RUN_ID",
                             "FSDP_EXEC_RUN_ID",
                             "PMIX_NAMESPACE"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
};

std::string host_of(const std::string& nodes) {
  const Environment slurm({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NODELIST", nodes}});
  const Result<Launch> launch = read_launch();
  return launch ? launch->master_address : "error";
}

// The first host that `scontrol show hostnames` prints for each of these.
TEST(Launch, RanksMeetAtTheFirstHostOfSlurmsShortLists) {
  EXPECT_EQ(host_of("node7"), "node7");
  EXPECT_EQ(host_of("node7,node9"), "node7");
  EXPECT_EQ(host_of("node[03-07,12],other"), "node03");
  EXPECT_EQ(host_of("node[12,3-7]"), "node12");
  EXPECT_EQ(host_of("node[5]"), "node5");
  EXPECT_EQ(host_of("login,node[03-07]"), "login");
  EXPECT_EQ(host_of("a100-[001-128]"), "a100-001");
  EXPECT_EQ(host_of("node[1-2]-ib"), "node1-ib");
  EXPECT_EQ(host_of("node[5,7]-ib,other"), "node5-ib");
  EXPECT_EQ(host_of("rack[1-2]node[03-07]"), "rack1node03");
  EXPECT_EQ(host_of("node[1-2"), "node1");
  EXPECT_EQ(host_of("node["), "node");
}

TEST(Launch, EachStepOfASlurmJobHasAPortOfItsOwn) {
  const auto port = [](const char* job, const char* step) {
    const Environment slurm({{"SLURM_PROCID", "1"},
                             {"SLURM_NTASKS", "2"},
                             {"SLURM_STEP_NODELIST", "n1"},
                             {"SLURM_JOB_ID", job},
                             {"SLURM_STEP_ID", step}});
    return read_launch()->master_port;
  };
  EXPECT_EQ(port("7", "0"), port("7", "0"));
  EXPECT_NE(port("7", "0"), port("7", "1"));
  EXPECT_NE(port("7", "0"), port("8", "0"));
  for (const char* job : {"0", "624", "625", "999999999"}) {
    EXPECT_GE(port(job, "3"), 20000);
    EXPECT_LT(port(job, "3"), 30000);
  }
}

TEST(Launch, TorchrunTakesPrecedenceOverOuterEngines) {
  const Environment both({{"RANK", "3"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"MASTER_ADDR", "there"},
                          {"MASTER_PORT", "29500"},
                          {"SLURM_PROCID", "0"},
                          {"SLURM_NTASKS", "1"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"}});
  const Result<Launch> launch = read_launch();
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->engine, "torchrun");
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->world_size, 8);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->master_address, "there");
  EXPECT_EQ(launch->master_port, 29500);
  EXPECT_TRUE(launch->agent_has_store);
  EXPECT_EQ(launch->restart, "2");
}

std::string run_id_under(std::map<std::string, std::string> variables) {
  variables.insert({{"MASTER_ADDR", "there"}, {"MASTER_PORT", "29500"}});
  const Environment engine(variables);
  const Result<Launch> launch = read_launch();
  return launch ? launch->run_id : "error";
}

TEST(Launch, RunTakesTheNameOfItsEngine) {
  const std::map<std::string, std::string> torchrun{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "7f3a"}, {"PMIX_NAMESPACE", "other"}};
  EXPECT_EQ(run_id_under(torchrun), "7f3a");
  EXPECT_EQ(run_id_under({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "4711.1"}}),
            "4711.1");
  EXPECT_EQ(
      run_id_under({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}}),
      "12.3");
  EXPECT_EQ(run_id_under({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "");
}

TEST(Launch, UsersRunNameOverridesTheEngines) {
  EXPECT_EQ(
      run_id_under({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "7f3a"}, {"FSDP_EXEC_RUN_ID", "a"}}),
      "a");
}

TEST(Launch, ReportsEveryError) {
  const Environment wrong({{"RANK", "two"}, {"WORLD_SIZE", "-2"}});
  const Result<Launch> launch = read_launch();
  ASSERT_FALSE(launch);
  ASSERT_EQ(launch.error().size(), 2U);
  EXPECT_EQ(launch.error()[0].where, "RANK");
  EXPECT_EQ(launch.error()[1].where, "WORLD_SIZE");
}

TEST(Launch, ARankBeyondTheWorldDoesNotExist) {
  const Environment beyond({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_FALSE(read_launch());
}

}  // namespace
}  // namespace fsdp::executor

#include "runs/rehearse_command.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "runs/rehearse_environment.h"
#include "runs/rehearse_settings.h"

namespace fsdp::runs {
namespace {

Launch launch(const std::string& line) {
  std::istringstream in(line);
  const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  return read_launch(words);
}

TEST(RehearseCommand, TorchrunSetsTheNumberOfGpus) {
  const Launch expected{"torchrun", "train.py", 8, 2};
  EXPECT_EQ(launch("torchrun --nproc-per-node 8 --nnodes 2 train.py --nnodes 7"), expected);
  EXPECT_EQ(launch("/opt/bin/torchrun --nproc_per_node=8 --nnodes=2:4 train.py"), expected);
  EXPECT_EQ(launch("python3 -m torch.distributed.run --nnodes 2 --nproc-per-node 8 train.py"), expected);
  EXPECT_EQ(launch("torchrun --standalone train.py"), (Launch{"torchrun", "train.py", {}, {}}));
  EXPECT_EQ(launch("torchrun --nproc-per-node auto train.py"),
            (Launch{"torchrun", "train.py", {}, {}, "--nproc-per-node auto"}));
  EXPECT_EQ(launch("torchrun --nproc-per-node 4 -m package.train --x 1"), (Launch{"torchrun", "package.train", 4, {}}));
}

TEST(RehearseCommand, AcceleratesProcessesAreThoseOfAllMachines) {
  EXPECT_EQ(launch("accelerate launch --num_processes 16 --num_machines 2 train.py"),
            (Launch{"accelerate", "train.py", 8, 2}));
  const std::string config = testing::TempDir() + "rehearse_command_test_" + std::to_string(getpid()) + ".yaml";
  std::ofstream(config) << "compute_environment: LOCAL_MACHINE\nnum_machines: 4\nnum_processes:  32 \n";
  EXPECT_EQ(launch("accelerate launch --config_file " + config + " train.py"),
            (Launch{"accelerate", "train.py", 8, 4}));
  // What the line says wins over the file.
  EXPECT_EQ(launch("accelerate launch --num_processes 8 --config_file " + config + " train.py"),
            (Launch{"accelerate", "train.py", 2, 4}));
  std::filesystem::remove(config);
}

TEST(RehearseCommand, DeepspeedSetsTheNumberOfGpus) {
  EXPECT_EQ(launch("deepspeed --num_gpus 4 --num_nodes=2 train.py --deepspeed config.json"),
            (Launch{"deepspeed", "train.py", 4, 2}));
}

TEST(RehearseCommand, PythonSetsNoNumberOfGpus) {
  EXPECT_EQ(launch("python -u folder/train.py --nnodes 4"), (Launch{"", "folder/train.py", {}, {}, "", true}));
  EXPECT_EQ(launch("python -m package.train"), (Launch{"", "package.train", {}, {}, "", true}));
  EXPECT_EQ(launch("./train.py --x"), (Launch{"", "./train.py", {}, {}, "", true}));
  // Who knows what it starts?
  EXPECT_EQ(launch("./train"), (Launch{}));
  EXPECT_EQ(launch("uv run torchrun train.py"), (Launch{"", "train.py", {}, {}}));
}

TEST(RehearseCommand, AProgramIsFoundAsAShellWould) {
  EXPECT_EQ(find_program("sh", "/nowhere:/bin").value(), "/bin/sh");
  EXPECT_EQ(find_program("/bin/sh", "").value(), "/bin/sh");
  const auto message = [](const std::string& name) { return to_string(find_program(name, "/bin").error().front()); };
  EXPECT_EQ(message("slep"), "slep: There is no such program on PATH. Did you mean sleep?");
  EXPECT_EQ(message("/bin"), "/bin: This is a folder. Write the command as you would type it.");
  // Tests run in the project root.
  EXPECT_EQ(message("tests/layers_test.pyy"),
            "tests/layers_test.pyy: There is no such program. Write the command as you would type it.");
  EXPECT_EQ(message("tests/schemas_test.py"),
            "tests/schemas_test.py: This file cannot be executed. Write python tests/schemas_test.py.");
}

TEST(RehearseRanks, AreTheRequestedOnes) {
  using Kind = RankChoice::Kind;
  const std::vector<std::int64_t> some = {0, 5};
  EXPECT_EQ(ranks_of({Kind::Numbers, {0, 5}}, 8, 8).value(), some);
  EXPECT_EQ(ranks_of({Kind::All, {}}, 3, 8).value(), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(ranks_of({Kind::Worst, {}}, 8, 4).value().size(), 8);
  // The first two, the middle, the last, and the first of the second node.
  EXPECT_EQ(ranks_of({Kind::Worst, {}}, 64, 8).value(), (std::vector<std::int64_t>{0, 1, 8, 32, 63}));
  EXPECT_EQ(ranks_of({Kind::Worst, {}}, 16, 16).value(), (std::vector<std::int64_t>{0, 1, 8, 15}));
  EXPECT_EQ(to_string(ranks_of({Kind::Numbers, {8}}, 8, 8).error().front()),
            "--rank: There is no rank 8 in a world of 8.");
}

TEST(RehearseEnvironment, GpuHasTheNameOfItsDriver) {
  const auto name = [](const std::string& gpu, std::vector<std::string> aliases) {
    Gpu described;
    described.name = gpu;
    described.aliases = std::move(aliases);
    return driver_name(described);
  };
  EXPECT_EQ(name("H100 SXM", {"H100", "H100 80GB", "H100 80GB HBM3"}), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(name("A100 80GB SXM", {"A100 80GB", "A100-SXM4-80GB", "A100"}), "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(name("T4", {"T4 16GB", "Tesla T4"}), "Tesla T4");
  EXPECT_EQ(name("RTX 4090", {"GeForce RTX 4090"}), "NVIDIA GeForce RTX 4090");
  EXPECT_EQ(name("H200", {}), "NVIDIA H200");
}

}  // namespace
}  // namespace fsdp::runs

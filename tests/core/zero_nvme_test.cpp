// What of a plan of ZeRO-3 is in files on a drive, and by how many buffers it goes there. The real DeepSpeed is asked
// in tests/rehearsal/nvme_test.py.

#include "core/frameworks/zero/zero_nvme.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

constexpr std::int64_t kMi = std::int64_t{1} << 20;

// Parameters of 4 Mi and 1 Mi elements over 4 ranks in a sub-group each: parts of 1 Mi and 256 Ki.
Layout two_groups() {
  Layout layout;
  layout.mesh = {1, 4};
  layout.parameter_dtype = {Dtype::BFloat16, Dtype::BFloat16};
  ShardedUnit unit;
  unit.parameters = {{.parameter = 0, .elements = 4 * kMi}, {.parameter = 1, .elements = kMi}};
  layout.units = {unit};
  layout.zero = {.parameters = {0, 1},
                 .begins = {0, kMi, kMi + kMi / 4},
                 .ranks = 4,
                 .elements = 5 * kMi,
                 .dtype = Dtype::BFloat16,
                 .group_begins = {0, 1, 2}};
  layout.buckets = {{.parameters = {1, 0}, .dtype = Dtype::BFloat16, .elements = 5 * kMi}};
  return layout;
}

Plan on_drive() {
  Plan plan;
  plan.runtime.framework = Framework::Zero3;
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::BFloat16};
  plan.mesh = {1, 4};
  plan.cpu_offload = true;
  plan.zero = default_zero_options(Framework::Zero3);
  plan.zero.nvme.optimizer = true;
  return plan;
}

TEST(ZeroNvme, GroupsSmallerThanABlockStayInMemory) {
  Plan plan = on_drive();
  // 4 MiB and 1 MiB in fp32.
  EXPECT_EQ(groups_on_drive(two_groups().zero, plan), (std::vector<bool>{true, true}));
  plan.zero.nvme.block_size = 2 * kMi;
  EXPECT_EQ(groups_on_drive(two_groups().zero, plan), (std::vector<bool>{true, false}));
  plan.zero.nvme.block_size = 1;
  EXPECT_EQ(smallest_file(plan), kMi);
}

TEST(ZeroNvme, FilesAreWholeBlocksAndGradientRemaindersStay) {
  Plan plan = on_drive();
  EXPECT_EQ(elements_of_file(257, 4, plan), 512);
  EXPECT_EQ(gradient_elements_on_drive(kMi + 1, plan), kMi);
  EXPECT_EQ(gradient_elements_on_drive(kMi / 4 - 1, plan), 0);
  plan.zero.nvme.intra_op_parallelism = 4;
  EXPECT_EQ(elements_of_file(257, 4, plan), 1024);
}

TEST(ZeroNvme, AStepReadsAndWritesStatesAndGradients) {
  // 1.25 Mi elements of 4 bytes: parameters, two moments and gradients.
  const DriveUse use = drive_use(two_groups(), on_drive(), Schedule{});
  EXPECT_EQ(use,
            (DriveUse{.kept = 20 * kMi, .read = 20 * kMi, .written = 20 * kMi, .fetched = 0, .gradients = 5 * kMi}));
  // Four buffers of 4 MiB.
  EXPECT_EQ(optimizer_swap_buffers(two_groups().zero, on_drive()), 16 * kMi);
}

TEST(ZeroNvme, APipelineNeedsBuffersOfItsNeighbors) {
  Plan plan = on_drive();
  const auto needed = [&] { return needed_optimizer_buffers(two_groups().zero, plan); };
  EXPECT_EQ(needed(), 4);
  plan.zero.nvme.pipeline_read = true;
  EXPECT_EQ(needed(), 8);
  plan.zero.nvme.pipeline_write = true;
  EXPECT_EQ(needed(), 8);  // Neither of two sub-groups has both neighbors.
  plan.zero.nvme.pipeline_read = false;
  EXPECT_EQ(needed(), 8);
  plan.optimizer = {.kind = OptimizerKind::Sgd};
  EXPECT_EQ(needed(), 4);
  const Errors errors = check_drive(two_groups(), on_drive(), Schedule{}, Schedule{});
  EXPECT_TRUE(errors.empty());
  plan = on_drive();
  plan.zero.nvme.buffer_count = 3;
  ASSERT_EQ(check_drive(two_groups(), plan, Schedule{}, Schedule{}).size(), 1U);
  EXPECT_EQ(check_drive(two_groups(), plan, Schedule{}, Schedule{})[0].where, "/zero/nvme/buffer_count");
}

TEST(ZeroNvme, TheFirstParametersStayInHostMemory) {
  Plan plan = on_drive();
  plan.zero.offload_param = true;
  plan.zero.nvme.parameters = true;
  // At 2 bytes: 2 MiB, and 512 KiB, which is below a file.
  EXPECT_EQ(parameters_on_drive(two_groups(), plan), (std::vector<bool>{false, false}));
  plan.zero.nvme.max_in_cpu = kMi - 1;
  EXPECT_EQ(parameters_on_drive(two_groups(), plan), (std::vector<bool>{true, false}));
  // As DeepSpeed makes it: for the whole parameter of the largest sub-group.
  EXPECT_EQ(parameter_write_buffer(two_groups(), plan), 8 * kMi);
  plan.zero.nvme.param_buffer_size = kMi - 1;
  const Errors errors = check_drive(two_groups(), plan, Schedule{}, Schedule{});
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].hint, "Write 1048576 or more.");
}

TEST(ZeroNvme, OptionsThatDeepSpeedRejectsAreRefused) {
  const auto refused = [](auto change) {
    Plan plan = on_drive();
    change(plan);
    return check_nvme(plan).size();
  };
  EXPECT_EQ(refused([](Plan&) {}), 0U);
  EXPECT_EQ(refused([](Plan& plan) { plan.zero.nvme = {.path = "/elsewhere"}; }), 1U);
  EXPECT_EQ(refused([](Plan& plan) { plan.cpu_offload = false; }), 1U);
  EXPECT_EQ(refused([](Plan& plan) { plan.zero.nvme.parameters = true; }), 1U);
  EXPECT_EQ(refused([](Plan& plan) { plan.zero.offload_ratio = 0.5; }), 1U);
  EXPECT_EQ(refused([](Plan& plan) { plan.zero.nvme.path = ""; }), 1U);
  EXPECT_EQ(refused([](Plan& plan) {
              plan.parameter_dtype = Dtype::BFloat16;
              plan.mixed_precision = {};
            }),
            1U);
}

}  // namespace
}  // namespace fsdp

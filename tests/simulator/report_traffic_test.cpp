// What collectives send, inside a node and between nodes.

#include <gtest/gtest.h>

#include "simulator/nccl/collective_cost.h"
#include "simulator/predictor.h"
#include "tests/support/small_models.h"

namespace fsdp::simulator {
namespace {

Plan exchanging_plan() {
  Plan plan;
  plan.runtime.framework = Framework::Zero3;
  plan.mesh = {1, 8};
  plan.units = {{{""}, {}}};
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::Float16, .reduce_dtype = Dtype::Float16};
  plan.zero = default_zero_options(Framework::Zero3);
  plan.zero.quantized_gradients = true;
  return plan;
}

// 8 ranks on 2 nodes of 4. A ring of all ranks leaves a node by each of its 4 GPUs; the 4 GPUs of a node exchange in
// it; 2 GPUs of the same place exchange over the network alone.
TEST(ReportTraffic, AnExchangeBetweenNodesIsSentOverTheNetwork) {
  const planner::SmallTransformer sizes{.layers = 2, .hidden = 512, .heads = 8};
  Predictor predictor(*build_model(planner::small_transformer(sizes)), planner::small_cluster(4, 2, Bytes(15LL << 30)));
  const auto report = predictor.report(exchanging_plan());
  ASSERT_TRUE(report.has_value()) << to_string(report.error().front());
  Bytes between;
  Bytes inside;
  int exchanges = 0;
  for (const Collective& collective : report->traffic.collectives) {
    const Bytes sent = ring_bytes_sent(collective.kind, collective.payload, static_cast<int>(collective.group_size));
    const std::int64_t over_network = collective.group_size == 8   ? sent.count() / 4
                                      : collective.group_size == 2 ? sent.count()
                                                                   : 0;
    exchanges += collective.group_size == 2 ? 1 : 0;
    between += Bytes(over_network);
    inside += sent - Bytes(over_network);
  }
  EXPECT_GT(exchanges, 0);
  EXPECT_EQ(report->traffic.sent_between_nodes, between);
  EXPECT_EQ(report->traffic.sent_inside_node, inside);
}

}  // namespace
}  // namespace fsdp::simulator

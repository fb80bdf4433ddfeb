// What a CPU that waits for nothing more than it must knows to be finished.

#include "simulator/memory/stream_order.h"

#include <gtest/gtest.h>

#include "simulator/memory/held_frees.h"

namespace fsdp::simulator {
namespace {

constexpr MemoryStream kCompute = MemoryStream::Compute;
constexpr MemoryStream kGather = MemoryStream::AllGatherCopyIn;
constexpr MemoryStream kReduce = MemoryStream::ReduceScatter;

TEST(StreamOrder, NothingIsFinishedBeforeTheCpuWaits) {
  StreamOrder order;
  const StreamOrder::Mark mark = order.submit(kCompute);
  EXPECT_EQ(order.waited_for(kCompute), 0);
  order.finish(mark);
  EXPECT_EQ(order.waited_for(kCompute), 1);
}

TEST(StreamOrder, WorkAfterAMarkIsNotAwaited) {
  StreamOrder order;
  const StreamOrder::Mark mark = order.submit(kCompute);
  order.submit(kCompute);
  order.submit(kGather);
  order.finish(mark);
  EXPECT_EQ(order.waited_for(kCompute), 1);
  EXPECT_EQ(order.waited_for(kGather), 0);
}

TEST(StreamOrder, WaitCoversOnlyEarlierWorkOfTheOtherStream) {
  StreamOrder order;
  order.submit(kCompute);
  order.wait(kGather, kCompute);
  order.submit(kCompute);
  order.finish(order.submit(kGather));
  EXPECT_EQ(order.waited_for(kCompute), 1) << "Of two; the second was submitted behind the wait.";
}

TEST(StreamOrder, WaitsPropagateBetweenStreams) {
  StreamOrder order;
  const StreamOrder::Mark first = order.submit(kCompute);
  order.wait(kGather, kCompute);
  order.wait(kReduce, order.submit(kGather));
  order.finish(order.submit(kReduce));
  EXPECT_EQ(order.waited_for(kCompute), first.ticket);
}

TEST(StreamOrder, CollectivesOfOneCommunicatorRunInOrder) {
  StreamOrder order;
  order.collective(kReduce, 0);
  order.collective(kGather, 0);
  order.collective(kCompute, 1);
  order.finish(order.submit(kGather));
  EXPECT_GT(order.waited_for(kReduce), 0) << "The gather could not begin before it.";
  EXPECT_EQ(order.waited_for(kCompute), 0) << "Of another communicator.";
}

TEST(StreamOrder, DeviceSynchronizationAwaitsAllStreams) {
  StreamOrder order;
  const StreamOrder::Mark gather = order.submit(kGather);
  order.wait(kCompute, kGather);
  EXPECT_FALSE(order.is_finished(gather));
  order.finish_all();
  EXPECT_TRUE(order.is_finished(gather));
  EXPECT_FALSE(order.is_finished(order.collective(kCompute, 0))) << "It came behind.";
}

TEST(StreamOrder, FinishedMarkDelaysNoStream) {
  StreamOrder order;
  const StreamOrder::Mark mark = order.submit(kCompute);
  order.finish(mark);
  order.submit(kCompute);
  order.wait(kGather, mark);
  order.finish(order.submit(kGather));
  EXPECT_EQ(order.waited_for(kCompute), 1);
}

TEST(EventQueue, CpuWaitsForTheOldestOfThreeUnfinishedEvents) {
  LiveSink sink;
  HeldFrees<LiveSink> held(sink);
  EventQueue queue;
  for (int i = 0; i < 3; ++i) {
    queue.limit(held);
    queue.record(held.order().submit(kGather));
  }
  EXPECT_EQ(held.order().waited_for(kGather), 0);
  queue.limit(held);
  EXPECT_EQ(held.order().waited_for(kGather), 1);
  queue.record(held.order().submit(kGather));
  held.finish_all();
  queue.limit(held);
  EXPECT_EQ(held.order().waited_for(kGather), 4) << "All are known to be done, and none is waited for.";
}

}  // namespace
}  // namespace fsdp::simulator

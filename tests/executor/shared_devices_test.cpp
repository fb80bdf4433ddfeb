#include "executor/network/shared_devices.h"

#include <gtest/gtest.h>

namespace fsdp::executor {
namespace {

TEST(SharedDevices, CardsOfANodeDifferByTheirAddresses) {
  EXPECT_FALSE(any_is_shared({{"a", "0000:01:00.0", ""}, {"a", "0000:02:00.0", ""}}));
  EXPECT_TRUE(any_is_shared({{"a", "0000:01:00.0", ""}, {"a", "0000:02:00.0", ""}, {"a", "0000:01:00.0", ""}}));
}

TEST(SharedDevices, TheSameAddressOfAnotherHostIsAnotherCard) {
  EXPECT_FALSE(any_is_shared({{"a", "0000:01:00.0", "1"}, {"b", "0000:01:00.0", "2"}}));
}

TEST(SharedDevices, EqualUuidsAreOneCardAtAnyAddress) {
  EXPECT_TRUE(any_is_shared({{"a", "0000:01:00.0", "1"}, {"b", "0000:02:00.0", "1"}}));
}

// NCCL refuses two parts of one card (MIG), because they have one address.
TEST(SharedDevices, PartsOfACardShareIt) {
  EXPECT_TRUE(any_is_shared({{"a", "0000:01:00.0", "1"}, {"a", "0000:01:00.0", "2"}}));
}

TEST(SharedDevices, ThisHostHasAName) {
  EXPECT_FALSE(this_host().empty());
  EXPECT_EQ(this_host(), this_host());
}

}  // namespace
}  // namespace fsdp::executor

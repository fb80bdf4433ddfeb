#include "executor/measured/function_listener.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fsdp::executor {
namespace {

void multiply(std::int64_t rows) {
  at::mm(at::zeros({rows, 2}), at::zeros({2, 3}));
}

TEST(FunctionListener, HearsNamesAndArgumentsOnEveryThread) {
  std::vector<std::int64_t> rows;
  {
    const FunctionListener listener([&](const CalledFunction& called) {
      if (called.name == "aten::mm") rows.push_back(called.arguments[0].toTensor().size(0));
    });
    multiply(4);
    std::thread([] { multiply(5); }).join();
  }
  multiply(6);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{4, 5}));
}

TEST(FunctionListener, TwoListenersHearTheSameAndOneMayLeave) {
  int first = 0;
  int second = 0;
  const auto counting = [](int& count) {
    return [&count](const CalledFunction& called) { count += called.name == "aten::mm" ? 1 : 0; };
  };
  std::optional<FunctionListener> one(counting(first));
  const FunctionListener other(counting(second));
  multiply(1);
  one.reset();
  multiply(1);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
}

TEST(FunctionListener, CallsByAListenerAreNotReported) {
  int products = 0;
  const FunctionListener listener([&](const CalledFunction& called) {
    if (called.name != "aten::mm") return;
    ++products;
    multiply(1);
  });
  multiply(1);
  EXPECT_EQ(products, 1);
}

TEST(FunctionListener, GivesTheNameWithItsOverload) {
  std::optional<c10::OperatorName> name;
  {
    const FunctionListener listener([&](const CalledFunction& called) {
      if (called.name == "aten::empty") name = called.operator_name;
    });
    at::empty({1});
  }
  ASSERT_TRUE(name);
  EXPECT_EQ(name->overload_name, "memory_format");
}

}  // namespace
}  // namespace fsdp::executor

// Calls a collective and waits for it, again and again, so that its ranks reach it at the same time, as they do in a
// step. Consecutive sizes differ by a factor of four. Every rank makes the same calls, so the number of calls may
// depend only on the size.
//
// On a CPU computing and sending share the cores. The same products are timed by themselves and after the start of an
// all-gather, on both ranks. The share is the extra time over the time of the all-gather by itself.
//
// Sources: nccl-tests, doc/PERFORMANCE.md, for the definition of a collective's size.
//
// Not modeled: two collectives at once.

#include "executor/calibrate/collective_times.h"

#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "executor/calibrate/marks.h"

namespace fsdp::executor {

namespace {

constexpr std::int64_t kSmallest = 1024;
constexpr Bytes kLarge(std::int64_t{1} << 20);
constexpr int kTimesOfSmall = 24;
constexpr int kTimesOfLarge = 8;
constexpr int kRepetitions = 9;

Seconds median_of(std::vector<Seconds> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Seconds median_time(c10::Device device, int times, const std::function<void()>& work) {
  Marks marks(device);
  std::vector<Seconds> found;
  work();
  for (int i = 0; i < times; ++i) {
    marks.clear();
    const std::size_t begin = marks.mark();
    work();
    const std::size_t end = marks.mark();
    marks.wait();
    found.push_back(marks.between(begin, end));
  }
  return median_of(std::move(found));
}

at::Tensor numbers(std::int64_t elements, c10::ScalarType dtype, c10::Device device) {
  return at::zeros({elements}, at::TensorOptions().dtype(dtype).device(device));
}

struct Buffers {
  at::Tensor whole;
  at::Tensor part;
};

Buffers buffers_of(std::int64_t bytes, c10::ScalarType dtype, const Group& group, c10::Device device) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(dtype));
  const std::int64_t part = std::max<std::int64_t>(1, bytes / item / group.size());
  return {numbers(part * group.size(), dtype, device), numbers(part, dtype, device)};
}

void add_time(WorkTimes& times, const at::Tensor& whole, Seconds time) {
  times.sizes.push_back(static_cast<double>(whole.nbytes()));
  times.microseconds.push_back(std::max(1e-3, 1e6 * time.count()));
}

// Noise only makes times longer, so a smaller size cannot take longer than a larger one.
void never_fall(WorkTimes& times) {
  for (std::size_t i = times.microseconds.size(); i-- > 1;) {
    times.microseconds[i - 1] = std::min(times.microseconds[i - 1], times.microseconds[i]);
  }
}

}  // namespace

std::vector<WorkTimes> time_collectives(Group& group, const CollectiveSettings& settings) {
  const c10::AutoGradMode no_gradient(false);
  WorkTimes gather{.work = "all_gather"};
  WorkTimes scatter{.work = "reduce_scatter"};
  WorkTimes reduce{.work = "all_reduce"};
  for (std::int64_t bytes = kSmallest;; bytes *= 4) {
    const std::int64_t now = std::min(bytes, std::max(kSmallest, settings.largest.count()));
    const int times = Bytes(now) > kLarge ? kTimesOfLarge : kTimesOfSmall;
    const auto timed = [&](WorkTimes& of, const Buffers& buffers, const std::function<void()>& work) {
      const double size = static_cast<double>(buffers.whole.nbytes());
      if (!of.sizes.empty() && of.sizes.back() >= size) return;
      add_time(of, buffers.whole, median_time(settings.device, times, work));
    };
    const Buffers gathered = buffers_of(now, settings.gathered, group, settings.device);
    timed(gather, gathered, [&] { group.all_gather(gathered.whole, gathered.part)->wait(); });
    const Buffers reduced = buffers_of(now, settings.reduced, group, settings.device);
    timed(scatter, reduced, [&] { group.reduce_scatter(reduced.part, reduced.whole, ReduceOp::Average)->wait(); });
    timed(reduce, reduced, [&] { group.all_reduce(reduced.whole, ReduceOp::Average)->wait(); });
    if (now != bytes || now == settings.largest.count()) break;
  }
  for (WorkTimes* times : {&reduce, &gather, &scatter}) never_fall(*times);
  return {gather, reduce, scatter};
}

namespace {

// Makes all ranks compute for the same time.
std::int64_t agreed(Group& group, double number, c10::Device device) {
  const at::Tensor sum = at::full({1}, number, at::TensorOptions().dtype(c10::kFloat).device(device));
  group.all_reduce(sum, ReduceOp::Average)->wait();
  return static_cast<std::int64_t>(std::ceil(sum.item<float>()));
}

}  // namespace

double compute_share(Group& group, const CollectiveSettings& settings) {
  const c10::AutoGradMode no_gradient(false);
  constexpr std::int64_t kSide = 128;
  const Buffers buffers =
      buffers_of(std::max(settings.largest.count(), kLarge.count()), settings.gathered, group, settings.device);
  const at::Tensor left = at::ones({kSide, kSide}, at::TensorOptions().device(settings.device));
  const auto compute = [&](std::int64_t products) {
    for (std::int64_t i = 0; i < products; ++i) at::mm(left, left);
  };
  const Seconds collective =
      median_time(settings.device, kRepetitions, [&] { group.all_gather(buffers.whole, buffers.part)->wait(); });
  const Seconds one = median_time(settings.device, kRepetitions, [&] { compute(64); }) / 64;
  const std::int64_t products = agreed(group, 2 * collective / one, settings.device);
  std::vector<double> shares;
  for (int i = 0; i < kRepetitions; ++i) {
    const Seconds alone = median_time(settings.device, 1, [&] { compute(products); });
    Marks marks(settings.device);
    agreed(group, 0, settings.device);
    const std::size_t begin = marks.mark();
    const std::unique_ptr<Pending> beside = group.all_gather(buffers.whole, buffers.part);
    compute(products);
    const std::size_t end = marks.mark();
    beside->wait();
    marks.wait();
    shares.push_back((marks.between(begin, end) - alone) / collective);
  }
  std::sort(shares.begin(), shares.end());
  return std::clamp(shares[shares.size() / 2], 0., 1.);
}

std::pair<BytesPerSecond, BytesPerSecond> time_copies(c10::Device device) {
  const c10::AutoGradMode no_gradient(false);
  constexpr std::int64_t kBytes = std::int64_t{64} << 20;
  const at::Tensor on_host = at::zeros({kBytes}, at::TensorOptions().dtype(c10::kByte)).pin_memory();
  const at::Tensor on_gpu = numbers(kBytes, c10::kByte, device);
  const Seconds to_gpu = median_time(device, kRepetitions, [&] { on_gpu.copy_(on_host, /*non_blocking=*/true); });
  const Seconds to_host = median_time(device, kRepetitions, [&] { on_host.copy_(on_gpu, /*non_blocking=*/true); });
  return {BytesPerSecond(kBytes / to_gpu.count()), BytesPerSecond(kBytes / to_host.count())};
}

Seconds time_launch(c10::Device device) {
  const c10::AutoGradMode no_gradient(false);
  constexpr int kKernels = 200;
  const at::Tensor small = numbers(1, c10::kFloat, device);
  return median_time(c10::Device(c10::kCPU), kRepetitions,
                     [&] {
                       for (int i = 0; i < kKernels; ++i) small.add_(1);
                     }) /
         kKernels;
}

}  // namespace fsdp::executor

// Three questions to one engine, which finds the plan with the least "time" among those with at most some memory:
//
//   time     the least time of a step, with the memory of a GPU
//   memory   the least memory m that any plan needs; then the least time of a step with m
//   tokens   the least time of a step divided by its samples, with the memory of a GPU
//
// All plans of a box have the same micro-batch and the same accumulation. So the bound of a box's time, divided by its
// samples, bounds the time of a sample, and the proof of the first question is that of the third.
//
// Samples stand for tokens: within one request they have the same length.
//
// Not modeled: a larger step may need more samples to reach the same loss. Among plans that count as equally fast, we
// name the one with less memory, which has the smaller micro-batch.

#include "planner/search/objective.h"

#include <algorithm>

namespace fsdp::planner {

std::int64_t samples_per_gpu(const Family& family, std::int64_t own) {
  return std::max<std::int64_t>(family.micro_batch == 0 ? own : family.micro_batch, 1) * family.accumulation;
}

Bound PerSampleCost::bound(const Box& box, int level) {
  Bound bound = cost_.bound(box, level);
  // If a family names no micro-batch, all families have the model's own, so the order does not depend on it.
  bound.time /= static_cast<double>(samples_per_gpu(families_.families[box.family], 1));
  return bound;
}

}  // namespace fsdp::planner

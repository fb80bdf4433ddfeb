#pragma once

// A plan with its layout and its schedule, which keeps all promises.

#include <gtest/gtest.h>

#include <utility>

#include "core/frameworks/layout.h"
#include "core/frameworks/lower.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

struct Lowered {
  ModelIndex index;
  Layout layout;
  Schedule schedule;
};

/// Fails the test where the plan has no layout, or its schedule breaks a promise. REQUIRES: the model outlives it.
inline Lowered lowered_of(const Model& model, const Plan& plan) {
  Lowered lowered{.index = index_of(model), .layout = {}, .schedule = {}};
  auto layout = make_layout(lowered.index, plan);
  EXPECT_TRUE(layout.has_value()) << to_string(layout.error().front());
  lowered.layout = *std::move(layout);
  lowered.schedule = lower(lowered.index, plan, lowered.layout);
  for (const Error& error : validate(lowered.schedule, lowered.index, lowered.layout)) {
    ADD_FAILURE() << to_string(error);
  }
  return lowered;
}

}  // namespace fsdp

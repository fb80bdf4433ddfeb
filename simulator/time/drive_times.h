#pragma once

// Time of an NVMe drive in a step. drive_times.cpp explains who waits for it.

#include "core/base/units.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp::simulator {

/// The optimizer's turn, `updating` of which the host computes. `drive`: the rank's share of its node's drives.
Seconds with_drive(Seconds updating, const Layout& layout, const Plan& plan, BytesPerSecond drive);

/// Time to write a bucket's gradients to the drive, as the mean of all micro-batches.
Seconds gradient_write_time(const GradientBucket& bucket, const Layout& layout, const Plan& plan, BytesPerSecond drive);

/// Time to read a group's parts from the drive, before they are gathered.
Seconds parameter_read_time(const ParameterGroup& group, const Plan& plan, BytesPerSecond drive);

}  // namespace fsdp::simulator

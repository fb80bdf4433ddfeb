#pragma once

// Time of an NVMe drive in a step. drive_times.cpp says how it is waited for.

#include "core/base/units.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp::simulator {

/// The optimizer's turn, of which the host computes for `updating`. `drive`: the rank's share of its node's drives.
Seconds with_drive(Seconds updating, const Layout& layout, const Plan& plan, BytesPerSecond drive);

/// A bucket's gradients on their way to the drive, as the mean of all micro-batches.
Seconds gradient_write_time(const GradientBucket& bucket, const Layout& layout, const Plan& plan, BytesPerSecond drive);

/// A group's parts on their way from the drive, before they are gathered.
Seconds parameter_read_time(const ParameterGroup& group, const Plan& plan, BytesPerSecond drive);

}  // namespace fsdp::simulator

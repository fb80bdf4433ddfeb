#include "core/frameworks/frameworks.h"

#include <array>

#include "core/frameworks/ddp/ddp_buckets.h"
#include "core/frameworks/ddp/lower_ddp.h"
#include "core/frameworks/fsdp1/flat_units.h"
#include "core/frameworks/fsdp1/lower_fsdp1.h"
#include "core/frameworks/fsdp2/lower_fsdp2.h"
#include "core/frameworks/simple_fsdp/lower_simple_fsdp.h"
#include "core/frameworks/simple_fsdp/parameter_reads.h"
#include "core/frameworks/zero/lower_zero.h"
#include "core/frameworks/zero/lower_zero3.h"
#include "core/frameworks/zero/zero_partition.h"

namespace fsdp {

namespace {

constexpr std::array kFrameworkRules = {
    FrameworkRules{.framework = Framework::Fsdp2, .lower = lower_fsdp2_steps},
    FrameworkRules{.framework = Framework::Fsdp1,
                   .check = check_flat_plan,
                   .check_units = check_flat_units,
                   .lower = lower_fsdp1_steps},
    FrameworkRules{
        .framework = Framework::Ddp, .check = check_ddp_plan, .finish = add_ddp_buckets, .lower = lower_ddp_steps},
    FrameworkRules{
        .framework = Framework::Zero1, .check = check_zero_plan, .finish = add_zero_parts, .lower = lower_zero},
    FrameworkRules{
        .framework = Framework::Zero2, .check = check_zero_plan, .finish = add_zero_parts, .lower = lower_zero},
    FrameworkRules{
        .framework = Framework::Zero3, .check = check_zero_plan, .finish = add_zero_parts, .lower = lower_zero3},
    FrameworkRules{.framework = Framework::SimpleFsdp,
                   .check = check_simple_fsdp_plan,
                   .finish = add_reads,
                   .lower = lower_simple_fsdp},
};

}  // namespace

const FrameworkRules& rules_of(const Plan& plan) {
  return row_of(kFrameworkRules, plan.runtime.framework);
}

}  // namespace fsdp

#pragma once

// The member "model" of a plan file: the model and its workload.

#include "core/base/json_writer.h"
#include "core/base/object_fields.h"
#include "core/plan/plan.h"

namespace fsdp {

void model_fields(Fields& fields, Plan& plan);
void write_model_members(JsonWriter& writer, const Plan& plan);

}  // namespace fsdp

#pragma once

// A run whose batches differ in length, for people.

#include "planner/request/length_answer.h"
#include "text/document.h"

namespace fsdp::render {

/// FITS, FITS, TIGHT or DOES NOT FIT, with its reason.
text::Entry verdict_of(const planner::LengthAnswer& answer);

/// The answer about the longest batch with the run's own verdict before it, and the run's figures after the plan.
/// `document`: brief or verbose; its first section is its verdict.
text::Document with_lengths(text::Document document, const planner::LengthAnswer& answer);

}  // namespace fsdp::render

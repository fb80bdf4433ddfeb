#pragma once

// The findings of configurations: for people, for scripts, for code scanning and for annotations of a workflow.

#include <string>
#include <vector>

#include "planner/check/finding.h"
#include "text/document.h"

namespace fsdp::render {

/// The findings of all runs.
struct CheckAnswer {
  std::vector<std::string> files;  ///< As typed.
  std::vector<planner::Finding> findings;

  int count(planner::Severity severity) const;
};

/// "2 errors and 1 warning in fsdp.yaml." first, then each finding. `verbose`: with the source of its rule.
text::Document document_of(const CheckAnswer& answer, bool quiet, bool verbose);

/// JSON of format_version 1.0.
std::string to_json(const CheckAnswer& answer);

/// SARIF 2.1.0, with the rules that found something. Severities are its levels of the same names.
std::string to_sarif(const CheckAnswer& answer);

/// Workflow commands of GitHub Actions, one a line: "::error file=fsdp.yaml,line=12,col=3,title=unknown-key::...".
std::string to_annotations(const CheckAnswer& answer);

}  // namespace fsdp::render

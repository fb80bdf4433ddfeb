#pragma once

// The command that is to be rehearsed, as its user typed it: which program it starts, and on how many GPUs.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fsdp::planner {

/// The arguments of a launcher. The launcher itself decides; this is a glance from outside, so that machines
/// can be put together before anything runs.
struct Launch {
  std::string launcher;  ///< "torchrun", "accelerate", "deepspeed"; empty: none.
  std::string script;    ///< "train.py", or the module after -m; empty: not found.
  std::optional<std::int64_t> gpus_per_node;
  std::optional<std::int64_t> nodes;
  std::string counts_by;   ///< "--nproc-per-node gpu": as many as the machine has; empty: a number, or nothing.
  bool is_python = false;  ///< A script of Python without a launcher: one rank, unless it starts others itself.

  bool operator==(const Launch&) const = default;
};

/// Reads torchrun's --nproc-per-node and --nnodes (of a range of nodes the least), accelerate's --num_processes and
/// --num_machines, also in the file of --config_file, and deepspeed's --num_gpus and --num_nodes. A value that is not a
/// number ("auto") is empty. REQUIRES: at least one word.
Launch read_launch(std::span<const std::string> words);

/// The program of a command: a path that can be executed, or a name on `path` (PATH). Error: neither, with the nearest
/// name, or what to write before a script of Python.
Result<std::string> find_program(const std::string& name, std::string_view path);

}  // namespace fsdp::planner

#pragma once

// The command to rehearse, as typed: the program that it starts, and the number of GPUs.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fsdp::runs {

/// The arguments of a launcher. The launcher itself decides; this is a look from outside, so that we can choose
/// machines before anything runs.
struct Launch {
  std::string launcher;  ///< "torchrun", "accelerate", "deepspeed"; may be empty.
  std::string script;    ///< "train.py", or the module after -m; empty if not found.
  std::optional<std::int64_t> gpus_per_node;
  std::optional<std::int64_t> nodes;
  std::string counts_by;   ///< "--nproc-per-node gpu": all of the machine's. Empty for a number, or if not given.
  bool is_python = false;  ///< A Python script without a launcher: one rank, unless it starts others itself.

  bool operator==(const Launch&) const = default;
};

/// Reads torchrun's --nproc-per-node and --nnodes (the minimum of a range), accelerate's --num_processes and
/// --num_machines, also from the file of --config_file, and deepspeed's --num_gpus and --num_nodes. A value that is not
/// a number ("auto") becomes `nullopt`. REQUIRES: at least one word.
Launch read_launch(std::span<const std::string> words);

/// The program of a command: an executable path, or a name on `path` (PATH). Error: neither, with the nearest name,
/// or the interpreter to write before a Python script.
Result<std::string> find_program(const std::string& name, std::string_view path);

}  // namespace fsdp::runs

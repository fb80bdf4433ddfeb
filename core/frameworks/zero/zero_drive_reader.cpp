// A part is read into a buffer of its own when its parameter is about to be gathered, and keeps the buffer until the
// parameter is let go. A module that needs an absent one waits for all reads in flight; so does whoever needs
// one that is on its way. Buffers are counted, and not refused: check_drive() does that.
//
// Sources: deepspeed/runtime/zero/partition_parameters.py (_ensure_availability_of_partitioned_params,
// _partition_param), runtime/swap_tensor/partitioned_param_swapper.py (swap_in, synchronize_reads,
// remove_partition_and_release_buffers), DeepSpeed 0.19.8.
//
// Not modeled: which of the buffers it is.

#include "core/frameworks/zero/zero_drive_reader.h"

#include <algorithm>
#include <utility>

#include "core/frameworks/zero/zero_nvme.h"

namespace fsdp {

ZeroDriveReader::ZeroDriveReader(const Layout& layout, const Plan& plan, std::size_t num_parameters)
    : on_drive_(parameters_on_drive(layout, plan)),
      parts_(num_parameters, Part::Away),
      bytes_(num_parameters, 0),
      buffers_(plan.zero.nvme.param_buffer_count) {
  on_drive_.resize(num_parameters, false);
  has_any_ = std::find(on_drive_.begin(), on_drive_.end(), true) != on_drive_.end();
  if (!has_any_) return;
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) {
      if (on_drive_[p.parameter]) bytes_[p.parameter] = file_bytes(p, layout, plan);
    }
  }
}

void ZeroDriveReader::read(int parameter, Part becomes) {
  counts_.asks_twice = counts_.asks_twice || parts_[parameter] != Part::Away;
  parts_[parameter] = becomes;
  counts_.read += bytes_[parameter];
  counts_.buffers = std::max(counts_.buffers, ++used_);
}

std::int64_t ZeroDriveReader::need(const std::vector<int>& parameters) {
  std::int64_t waited = 0;
  bool waits = false;
  for (const int p : parameters) {
    if (!on_drive_[p]) continue;
    waits = waits || parts_[p] == Part::OnItsWay;
    if (parts_[p] != Part::Away) continue;
    read(p, Part::There);
    waited += bytes_[p];
  }
  if (waited == 0 && !waits) return 0;
  for (Part& part : parts_) {
    if (part == Part::OnItsWay) part = Part::There;
  }
  return waited;
}

void ZeroDriveReader::read_ahead(const std::vector<int>& parameters) {
  for (const int p : parameters) read(p, Part::OnItsWay);
}

void ZeroDriveReader::release(int parameter) {
  if (!on_drive_[parameter] || parts_[parameter] == Part::Away) return;
  parts_[parameter] = Part::Away;
  --used_;
}

DriveReads ZeroDriveReader::take_counts() {
  return std::exchange(counts_, DriveReads{.buffers = used_});
}

}  // namespace fsdp

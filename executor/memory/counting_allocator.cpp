// A record lies before each block, so that a release on any thread, such as Gloo's, finds the size and the category. A
// block's deleter gets the address of its data, because some libraries release by address (oneDNN's scratch goes
// through c10::Allocator::raw_deallocate).
//
// Not counted: memory that libraries get from malloc (oneDNN's scratch, Gloo's buffers, thread stacks).
//
// Source: c10/core/CPUAllocator.h, c10/core/impl/alloc_cpu.h (alignment and zero-filling options are those of PyTorch's
// own allocator), torch 2.11.

#include "executor/memory/counting_allocator.h"

#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace fsdp::executor {

namespace {

/// The alignment of PyTorch's blocks.
struct alignas(64) BlockRecord {
  std::int64_t bytes = 0;
  MemoryCategory category = MemoryCategory::Temp;
  std::int64_t number = 0;  ///< The number of the allocation, in order.

  static BlockRecord& of(void* data) { return *(static_cast<BlockRecord*>(data) - 1); }
  void* data() { return this + 1; }
};

class Counts {
 public:
  void add(BlockRecord& record) {
    const std::lock_guard lock(mutex_);
    if (limit_ > 0 && total_ + record.bytes > limit_) {
      throw c10::OutOfMemoryError(
          {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
          fmt::format("{} bytes were asked for while {} of {} were in use", record.bytes, total_, limit_));
    }
    record.category = category_;
    record.number = ++last_number_;
    change(record.category, record.bytes);
    if (total_ > peak_.bytes.count()) take_peak();
  }

  void remove(BlockRecord& record) {
    const std::lock_guard lock(mutex_);
    change(record.category, -record.bytes);
    if (listener_) listener_({-record.bytes, record.category, moment_, record.data()});
  }

  void tell(BlockRecord& record, std::int64_t bytes) const {
    const std::lock_guard lock(mutex_);
    if (listener_) listener_({bytes, record.category, moment_, record.data()});
  }

  void move(BlockRecord& record, MemoryCategory to) {
    const std::lock_guard lock(mutex_);
    change(record.category, -record.bytes);
    change(to, record.bytes);
    // Autograd passes a gradient on when it is complete, but it is a gradient from its creation.
    const bool is_gradient = record.category == MemoryCategory::Temp && to == MemoryCategory::UnshardedGrad;
    if (is_gradient && record.number <= number_at_peak_) {
      peak_.at_peak[static_cast<std::size_t>(record.category)] -= Bytes(record.bytes);
      peak_.at_peak[static_cast<std::size_t>(to)] += Bytes(record.bytes);
    }
    record.category = to;
  }

  // Blocks without a record before them are found by their address.
  void add_foreign(const void* address, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    foreign_[address] = {.bytes = bytes, .category = category_};
    change(category_, bytes);
    if (total_ > peak_.bytes.count()) take_peak();
  }
  void remove_foreign(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = foreign_.find(address);
    if (found == foreign_.end()) return;
    change(found->second.category, -found->second.bytes);
    foreign_.erase(found);
  }
  void move_foreign(const void* address, MemoryCategory to) {
    const std::lock_guard lock(mutex_);
    const auto found = foreign_.find(address);
    if (found == foreign_.end()) return;
    change(found->second.category, -found->second.bytes);
    change(to, found->second.bytes);
    found->second.category = to;
  }

  MemoryCategory set_category(MemoryCategory category) {
    const std::lock_guard lock(mutex_);
    return std::exchange(category_, category);
  }

  void begin_peak() {
    const std::lock_guard lock(mutex_);
    take_peak();
  }

  LivePeak peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  BytesByCategory live() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }

  void set_listener(std::function<void(const MemoryEvent&)> listener) {
    const std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
  }
  void set_limit(Bytes limit) {
    const std::lock_guard lock(mutex_);
    limit_ = limit.count();
  }
  void set_moment(std::int64_t moment) {
    const std::lock_guard lock(mutex_);
    moment_ = moment;
  }
  std::int64_t moment() const {
    const std::lock_guard lock(mutex_);
    return moment_;
  }

 private:
  void change(MemoryCategory category, std::int64_t bytes) {
    live_[static_cast<std::size_t>(category)] += Bytes(bytes);
    total_ += bytes;
  }
  void take_peak() {
    peak_.bytes = Bytes(total_);
    peak_.at_peak = live_;
    peak_.moment = moment_;
    number_at_peak_ = last_number_;
  }

  struct Foreign {
    std::int64_t bytes = 0;
    MemoryCategory category = MemoryCategory::Temp;
  };

  mutable std::mutex mutex_;
  BytesByCategory live_{};
  LivePeak peak_;
  std::int64_t total_ = 0;
  std::int64_t limit_ = 0;
  std::int64_t moment_ = 0;
  std::int64_t last_number_ = 0;
  std::int64_t number_at_peak_ = 0;
  MemoryCategory category_ = MemoryCategory::Temp;
  std::function<void(const MemoryEvent&)> listener_;
  std::map<const void*, Foreign> foreign_;
};

ReserveMeter* reserve_meter = nullptr;

thread_local std::int64_t own_bytes = 0;
thread_local std::int64_t own_highest = 0;

Counts& counts() {
  static Counts* const kept_until_the_end = new Counts;  // Tensors of other statics may outlive any static of ours.
  return *kept_until_the_end;
}

void release(void* data) {
  if (data == nullptr) return;
  BlockRecord& record = BlockRecord::of(data);
  own_bytes -= record.bytes;
  counts().remove(record);
  c10::free_cpu(&record);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    BlockRecord counted{.bytes = static_cast<std::int64_t>(bytes)};
    counts().add(counted);
    BlockRecord* record = nullptr;
    try {
      record = new (c10::alloc_cpu(bytes + sizeof(BlockRecord))) BlockRecord(counted);
    } catch (...) {
      counts().remove(counted);
      throw;
    }
    counts().tell(*record, record->bytes);
    own_bytes += record->bytes;
    own_highest = std::max(own_highest, own_bytes);
    return {record->data(), record->data(), &release, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

/// Freed memory stays with the process, as a GPU's memory stays with PyTorch's allocator. By default glibc returns
/// large blocks to the system, and each step pays for fresh pages: about a fifth of a small model's step, depending on
/// earlier allocations (mallopt(3)).
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

}  // namespace

void install_counting_allocator() {
  keep_freed_memory();
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

CategoryScope::CategoryScope(MemoryCategory category) : before_(counts().set_category(category)) {}
CategoryScope::~CategoryScope() {
  counts().set_category(before_);
}

void recount(const at::Tensor& tensor, MemoryCategory category) {
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.get() == nullptr) return;
  if (data.get_deleter() == &release) return counts().move(BlockRecord::of(data.get_context()), category);
  counts().move_foreign(data.get(), category);
}

void set_reserve_meter(ReserveMeter* meter) {
  reserve_meter = meter;
}
void count_allocation(const void* address, std::int64_t bytes) {
  counts().add_foreign(address, bytes);
}
void recount(const void* address, MemoryCategory category) {
  counts().move_foreign(address, category);
}
void count_release(const void* address) {
  counts().remove_foreign(address);
}

BytesByCategory live_bytes() {
  return counts().live();
}
void begin_peak() {
  counts().begin_peak();
  if (reserve_meter != nullptr) reserve_meter->begin_peak();
}
void set_moment(std::int64_t moment) {
  counts().set_moment(moment);
}
std::int64_t current_moment() {
  return counts().moment();
}
LivePeak live_peak() {
  LivePeak peak = counts().peak();
  if (reserve_meter != nullptr) reserve_meter->add_to(peak);
  return peak;
}
ThreadPeak::ThreadPeak() : begin_(own_bytes), highest_before_(std::exchange(own_highest, own_bytes)) {}
ThreadPeak::~ThreadPeak() {
  own_highest = std::max(own_highest, highest_before_);
}
Bytes ThreadPeak::highest() const {
  return Bytes(own_highest - begin_);
}
Bytes ThreadPeak::now() const {
  return Bytes(own_bytes - begin_);
}
void trace_memory(std::function<void(const MemoryEvent&)> listener) {
  counts().set_listener(std::move(listener));
}
void limit_memory(Bytes limit) {
  counts().set_limit(limit);
}

}  // namespace fsdp::executor

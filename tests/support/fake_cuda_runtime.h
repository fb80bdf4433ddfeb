#pragma once

// What a test says to the stand-in for the CUDA runtime, and asks it.

#include <cstdint>

extern "C" {

struct FsdpFakeCalls {
  std::int64_t num_malloc, num_malloc_failed, num_free;
  std::int64_t num_create, num_create_failed, num_unmap, num_reserve;
  std::int64_t num_event_record;
  std::int64_t used_bytes, peak_used_bytes;
};

/// Memory of the one device. Before the first allocation.
void fsdp_fake_set_total(std::int64_t bytes);
/// Memory of the device that others hold.
void fsdp_fake_set_used_by_others(std::int64_t bytes);
/// Whether an event stays open until its stream is waited for.
void fsdp_fake_hold_events(bool hold);
/// All that was put on one stream, or on every stream, is done.
void fsdp_fake_complete(void* stream);
void fsdp_fake_complete_all();
FsdpFakeCalls fsdp_fake_calls();
/// The first address that is handed out; the others follow, and none comes twice.
std::int64_t fsdp_fake_base();
}

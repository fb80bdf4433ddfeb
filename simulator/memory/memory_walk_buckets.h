#pragma once

// The part of the memory walk that knows DDP's buckets.
//
//   construction   rank 0's parameters and buffers are sent in pieces of up to 250 MiB, each one flat copy and the
//                  parts that are copied back out of it; then the buckets of the first step, one for each dtype
//   second forward the buckets of all later steps take their place
//   SyncBuffers    buffers of one dtype in one flat copy
//   ReduceBucket   nothing: gradients were copied into the bucket as they came, and the sum is formed in it
//
// A bucket lives as long as the wrapper. A gradient that is a view of its bucket goes when it has been copied there.
//
// Sources: torch/csrc/distributed/c10d/reducer.cpp (initialize_buckets, rebuild_buckets, mark_variable_ready_dense),
// comm.cpp (broadcast_coalesced), torch 2.11.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/plan/ddp_buckets.h"
#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

template <class Sink>
class BucketWalk {
 public:
  BucketWalk(const WalkInput& input, Sink& sink) : in_(input), sink_(sink) {
    if (!layout().buckets.empty()) first_ = first_step_buckets(layout());
  }

  /// The wrapper is made around a model that is there.
  void construct() {
    if (first_.empty()) return;
    std::vector<Part> parts;
    const Model& model = *in_.index->model;
    for (std::size_t p = 0; p < model.parameters.size(); ++p) {
      parts.push_back({layout().parameter_dtype[p], num_elements(model.parameters[p].shape)});
    }
    for (const Buffer& buffer : model.buffers) parts.push_back({buffer.dtype, num_elements(buffer.shape)});
    broadcast(parts);
    for (std::size_t b = 0; b < first_.size(); ++b) make(b, first_[b]);
  }

  /// A forward begins. REQUIRES: called once a forward.
  void enter_forward() {
    has_begun_ = true;
    if (first_.empty() || !has_reduced_ || is_rebuilt_) return;
    is_rebuilt_ = true;
    for (std::size_t b = 0; b < first_.size(); ++b) sink_.free(in_.ids->bucket(static_cast<int>(b)));
    for (std::size_t b = 0; b < layout().buckets.size(); ++b) make(first_.size() + b, layout().buckets[b]);
  }

  void sync_buffers() {
    std::vector<Part> parts;
    for (const Buffer& buffer : in_.index->model->buffers) {
      parts.push_back({buffer.dtype, num_elements(buffer.shape)});
    }
    broadcast(parts);
  }

  void reduce() {
    sink_.collective();
    has_reduced_ = true;
  }

 private:
  const Layout& layout() const { return *in_.layout; }

  struct Part {
    Dtype dtype = Dtype::Float32;
    std::int64_t elements = 0;
  };

  // Two pieces are on their way while a third is copied together.
  void broadcast(const std::vector<Part>& parts) {
    constexpr std::array kPlaces = {SingleTensor::Broadcast, SingleTensor::Broadcast2, SingleTensor::Broadcast3};
    const auto id = [&](std::size_t piece) { return in_.ids->of(kPlaces[piece % kPlaces.size()]); };
    const std::vector<std::int64_t> pieces = pieces_of(parts);
    std::size_t done = 0;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      sink_.alloc(id(piece), pieces[piece], MemoryStream::Compute, MemoryCategory::Temp);
      if (has_begun_) sink_.collective();
      if (piece - done == 2) sink_.free(id(done++));
    }
    while (done < pieces.size()) sink_.free(id(done++));
  }

  // Bytes, in the order of the first tensor of each.
  static std::vector<std::int64_t> pieces_of(const std::vector<Part>& parts) {
    constexpr std::int64_t kPiece = std::int64_t{250} << 20;
    struct Piece {
      Dtype dtype;
      std::int64_t bytes;
      bool is_open;
    };
    std::vector<Piece> pieces;
    for (const Part& part : parts) {
      auto piece = std::find_if(pieces.begin(), pieces.end(),
                                [&](const Piece& of) { return of.is_open && of.dtype == part.dtype; });
      if (piece == pieces.end()) piece = pieces.insert(pieces.end(), {part.dtype, 0, true});
      piece->bytes += size_of(part.dtype).count() * part.elements;
      piece->is_open = piece->bytes < kPiece;
    }
    std::vector<std::int64_t> bytes;
    for (const Piece& piece : pieces) bytes.push_back(piece.bytes);
    return bytes;
  }

  void make(std::size_t number, const GradientBucket& bucket) {
    sink_.alloc(in_.ids->bucket(static_cast<int>(number)), bucket.bytes().count(), MemoryStream::Compute,
                MemoryCategory::UnshardedGrad);
  }

  const WalkInput& in_;
  Sink& sink_;
  std::vector<GradientBucket> first_;  // Of the first step.
  bool has_begun_ = false;             // Collectives of the construction belong to no step.
  bool has_reduced_ = false;
  bool is_rebuilt_ = false;
};

}  // namespace fsdp::simulator

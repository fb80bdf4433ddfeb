#pragma once

// The part of the memory walk for DDP's buckets.
//
//   construction   rank 0 broadcasts parameters and buffers in pieces of at least 250 MiB, each one flat copy unless it
//                  is a single tensor; then the buckets of the first step, one for each dtype
//   Free           the buckets of all later reductions replace those of the first one
//   SyncBuffers    buffers of one dtype in one flat copy
//   ReduceBucket   nothing: gradients were copied into the bucket as they came, and the sum is formed in it
//
// A bucket lives as long as the wrapper. A gradient that is a view of its bucket is freed after its copy.
//
// Sources: torch/csrc/distributed/c10d/reducer.cpp (initialize_buckets, rebuild_buckets, mark_variable_ready_dense),
// comm.cpp (broadcast_coalesced), torch 2.11.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/frameworks/ddp/ddp_buckets.h"
#include "simulator/memory/memory_walk_step.h"

namespace fsdp::simulator {

template <class Sink>
class BucketWalk final : public StepWalk<Sink> {
  using Step = StepWalk<Sink>;

 public:
  explicit BucketWalk(const WalkParts<Sink>& parts) : Step(parts) {
    begin_ = static_cast<int>(layout().first_buckets.empty() ? 0 : layout().buckets.size());
  }

  /// Wraps an existing model.
  void initialize() override {
    Step::initialize();
    if (!layout().keeps_buckets()) return;
    std::vector<Part> parts;
    const Model& model = *in_.index->model;
    for (std::size_t p = 0; p < model.parameters.size(); ++p) {
      parts.push_back({layout().parameter_dtype[p], num_elements(model.parameters[p].shape)});
    }
    for (const Buffer& buffer : model.buffers) {
      if (buffer.registered) parts.push_back({buffer.dtype, num_elements(buffer.shape)});
    }
    broadcast(parts);
    make(begin_, layout().num_buckets());
    if (!in_.plan->ddp.find_unused_parameters) return;
    sink_.alloc(in_.ids->of(SingleTensor::UsedMap), used_map_bytes(model).count(), MemoryStream::Compute,
                MemoryCategory::Buffer);
  }

  void make_states() override {
    Step::make_states();
    free_first(0);
  }

  void run(const Instruction& step) override {
    step.kind == InstructionKind::SyncBuffers ? sync_buffers() : Step::run(step);
  }

  void free(const Instruction& step) override { free_first(step.micro_batch); }

 private:
  using Step::in_;
  using Step::sink_;

  // Before the forward of a micro-batch.
  void free_first(int micro_batch) {
    if (begin_ == 0) return;
    // Gradients of an earlier micro-batch that are views of the old buckets are copied into the new ones.
    const bool has_views = in_.plan->ddp.gradient_as_bucket_view && micro_batch > 0;
    if (!has_views) drop_first();
    make(0, begin_);
    if (has_views) drop_first();
    begin_ = 0;
  }

  void sync_buffers() {
    has_begun_ = true;
    std::vector<Part> parts;
    for (const Buffer& buffer : in_.index->model->buffers) {
      if (!buffer.registered) continue;
      parts.push_back({buffer.dtype, num_elements(buffer.shape)});
    }
    broadcast(parts);
  }

  const Layout& layout() const { return *in_.layout; }

  struct Part {
    Dtype dtype = Dtype::Float32;
    std::int64_t elements = 0;
  };

  // At most two pieces are in flight.
  void broadcast(const std::vector<Part>& parts) {
    constexpr std::array kPlaces = {SingleTensor::Broadcast, SingleTensor::Broadcast2};
    const auto id = [&](std::size_t piece) { return in_.ids->of(kPlaces[piece % kPlaces.size()]); };
    const std::vector<std::int64_t> pieces = pieces_of(parts);
    const auto finish = [&](std::size_t piece) {
      if (pieces[piece] > 0) sink_.free(id(piece));
    };
    std::size_t done = 0;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      if (piece - done == 2) finish(done++);
      if (pieces[piece] > 0) sink_.alloc(id(piece), pieces[piece], MemoryStream::Compute, MemoryCategory::Temp);
      if (has_begun_) sink_.collective();
    }
    while (done < pieces.size()) finish(done++);
  }

  // Bytes of the flat copies, in the order of the first tensor of each; 0 for a single tensor, which is sent without a
  // copy.
  static std::vector<std::int64_t> pieces_of(const std::vector<Part>& parts) {
    constexpr std::int64_t kPiece = std::int64_t{250} << 20;
    struct Piece {
      Dtype dtype;
      std::int64_t bytes;
      bool is_open;
      int count;
    };
    std::vector<Piece> pieces;
    for (const Part& part : parts) {
      auto piece = std::find_if(pieces.begin(), pieces.end(),
                                [&](const Piece& of) { return of.is_open && of.dtype == part.dtype; });
      if (piece == pieces.end()) piece = pieces.insert(pieces.end(), {part.dtype, 0, true, 0});
      piece->bytes += size_of(part.dtype).count() * part.elements;
      ++piece->count;
      piece->is_open = piece->bytes < kPiece;
    }
    std::vector<std::int64_t> bytes;
    for (const Piece& piece : pieces) bytes.push_back(piece.count > 1 ? piece.bytes : 0);
    return bytes;
  }

  void drop_first() {
    for (int b = begin_; b < layout().num_buckets(); ++b) sink_.free(in_.ids->bucket(b));
  }

  void make(int begin, int end) {
    for (int b = begin; b < end; ++b) {
      sink_.alloc(in_.ids->bucket(b), layout().bucket(b).bytes().count(), MemoryStream::Compute,
                  MemoryCategory::UnshardedGrad);
    }
  }

  int begin_ = 0;           // The number of the first existing bucket; those of the first reduction come last.
  bool has_begun_ = false;  // Collectives of the construction belong to no step.
};

}  // namespace fsdp::simulator

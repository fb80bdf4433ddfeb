// The reducer of DDP. A gradient that is complete is divided by the number of ranks while it is copied into its bucket;
// the bucket is summed; at the end of the backward the sums are copied back into the gradients. With
// gradient_as_bucket_view the gradient is from then on its place in the bucket, and what comes in a later micro-batch
// is added there, so that the division is in place.
//
// The first reduction has one bucket for each dtype with parameters as the model registers them. In front of the next
// forward the buckets of all later steps are made, in the order in which gradients were ready. Sums over three ranks
// and more depend on where in a bucket a gradient lies, so that order is seen in the bits.
//
// Sources: torch/csrc/distributed/c10d/reducer.cpp (mark_variable_ready_dense, finalize_bucket_dense,
// copy_bucket_to_grad, initialize_buckets, rebuild_buckets, all_reduce_local_used_map), comm.cpp (broadcast_coalesced),
// torch/nn/parallel/distributed.py (_ddp_init_helper, _sync_module_states), torch 2.11.
//
// Not modeled: the broadcasts of the indices of rebuilt buckets, which are the same on all ranks.

#include "executor/training/gradient_buckets.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "core/plan/ddp_buckets.h"
#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"
#include "executor/training/gradients.h"
#include "executor/training/model_run.h"

namespace fsdp::executor {

namespace {

constexpr std::size_t kPiece = std::size_t{250} << 20;  // broadcast_bucket_size of DistributedDataParallel.
constexpr std::size_t kPiecesUnderWay = 2;              // MAX_IN_FLIGHT of broadcast_coalesced.

struct SentPiece {
  std::vector<at::Tensor> tensors;
  at::Tensor flat;
  std::unique_ptr<Pending> pending;

  void finish() {
    pending->wait();
    if (tensors.size() == 1) return;
    std::int64_t begin = 0;
    for (const at::Tensor& tensor : tensors) {
      tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
      begin += tensor.numel();
    }
    empty_storage(flat);
  }
};

// Tensors of one dtype together, in the order of the first of each; one is closed when it has so many bytes.
std::vector<SentPiece> pieces_of(const std::vector<at::Tensor>& tensors) {
  std::vector<SentPiece> pieces;
  std::vector<std::size_t> bytes;
  for (const at::Tensor& tensor : tensors) {
    std::size_t at = 0;
    const auto takes = [&](std::size_t i) {
      return bytes[i] < kPiece && pieces[i].tensors.front().scalar_type() == tensor.scalar_type();
    };
    while (at < pieces.size() && !takes(at)) ++at;
    if (at == pieces.size()) {
      pieces.emplace_back();
      bytes.push_back(0);
    }
    pieces[at].tensors.push_back(tensor);
    bytes[at] += tensor.nbytes();
  }
  return pieces;
}

at::Tensor flat_copy(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape(-1));
  return at::cat(flat);
}

}  // namespace

GradientBuckets::GradientBuckets(const ModelIndex& index, const Plan& plan, const Layout& layout,
                                 std::vector<ParameterState*> states, Group* group, CollectiveListener& listener)
    : index_(index),
      plan_(plan),
      layout_(layout),
      states_(std::move(states)),
      group_(group),
      listener_(listener),
      uses_(gradient_uses(index)),
      first_(first_step_buckets(plan, layout)) {}

// ---- the wrapper ----

void GradientBuckets::construct(const std::vector<at::Tensor>& buffers) {
  if (group_ == nullptr) return;
  std::vector<at::Tensor> sent;
  for (const ParameterState* state : states_) sent.push_back(state->local);
  sent.insert(sent.end(), buffers.begin(), buffers.end());
  broadcast(sent, /*is_told=*/false);
  make(first_);
  if (!plan_.ddp.find_unused_parameters) return;
  is_rebuilt_ = true;
  const CategoryScope category(MemoryCategory::Buffer);
  const auto is_trained = [](const ParameterState* state) { return state->parameter->trainable; };
  used_map_ = at::zeros({std::count_if(states_.begin(), states_.end(), is_trained)}, c10::kInt);
}

void GradientBuckets::sync_buffers(const std::vector<at::Tensor>& buffers) {
  broadcast(buffers, /*is_told=*/true);
}

void GradientBuckets::broadcast(const std::vector<at::Tensor>& tensors, bool is_told) {
  const CategoryScope category(MemoryCategory::Temp);
  std::deque<SentPiece> under_way;
  const auto finish_one = [&] {
    under_way.front().finish();
    under_way.pop_front();
  };
  for (SentPiece& piece : pieces_of(tensors)) {
    if (under_way.size() == kPiecesUnderWay) finish_one();
    piece.flat = piece.tensors.size() == 1 ? piece.tensors.front() : flat_copy(piece.tensors);
    if (is_told) {
      listener_.called(-1, {CollectiveKind::Broadcast, piece.flat.scalar_type(), piece.flat.numel(),
                            static_cast<std::int64_t>(piece.flat.nbytes()), MeshDimension::Replicate, group_->size()});
    }
    piece.pending = group_->broadcast(piece.flat, 0);
    under_way.push_back(std::move(piece));
  }
  while (!under_way.empty()) finish_one();
}

void GradientBuckets::make(const std::vector<GradientBucket>& buckets) {
  const CategoryScope gradients(MemoryCategory::UnshardedGrad);
  for (const GradientBucket& of : buckets) {
    Bucket bucket;
    bucket.of = &of;
    bucket.sum = at::empty({of.elements}, scalar_type(of.dtype));
    std::int64_t begin = 0;
    for (const int parameter : of.parameters) {
      const Shape& shape = states_[parameter]->parameter->shape;
      const std::int64_t elements = num_elements(shape);
      bucket.views.push_back(bucket.sum.narrow(0, begin, elements).view(shape));
      begin += elements;
    }
    buckets_.push_back(std::move(bucket));
  }
  find_places();
}

void GradientBuckets::find_places() {
  places_.assign(states_.size(), {});
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const std::vector<int>& parameters = buckets_[b].of->parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      places_[parameters[i]] = {static_cast<int>(b), static_cast<int>(i)};
    }
  }
}

at::Tensor& GradientBuckets::view_of(int parameter) {
  const Place& place = places_[parameter];
  return buckets_[place.bucket].views[place.position];
}

void GradientBuckets::enter_forward(int micro_batch) {
  if (group_ == nullptr || !has_reduced_ || is_rebuilt_) return;
  is_rebuilt_ = true;
  std::vector<Bucket> old = std::exchange(buckets_, {});
  const auto drop_old = [&] {
    for (const Bucket& bucket : old) empty_storage(bucket.sum);
    old.clear();
  };
  // Gradients of an earlier micro-batch lie in the old ones.
  const bool has_views = plan_.ddp.gradient_as_bucket_view && micro_batch > 0;
  if (!has_views) drop_old();
  make(layout_.buckets);
  if (!has_views) return;
  for (ParameterState* state : states_) {
    if (!state->grad.defined()) continue;
    at::Tensor& view = view_of(state->layout.parameter);
    view.copy_(state->grad);
    state->grad = view;
  }
  drop_old();
}

// ---- gradients ----

bool GradientBuckets::is_unused(int parameter) const {
  return !states_[parameter]->layout.receives_gradient;
}

void GradientBuckets::prepare_reduce() {
  is_prepared_ = true;
  for (Bucket& bucket : buckets_) {
    bucket.arrived = 0;
    for (std::size_t i = 0; i < bucket.views.size(); ++i) {
      if (!is_unused(bucket.of->parameters[i])) continue;
      bucket.views[i].zero_();
      ++bucket.arrived;
    }
  }
}

void GradientBuckets::add_gradient(int parameter, at::Tensor gradient) {
  ParameterState& state = *states_[parameter];
  state.add_new_gradient(std::move(gradient));
  if (state.came == uses_[parameter]) complete(state);
}

// Autograd hands a gradient over as soon as it is there; what waits for the end of a piece would live longer.
bool GradientBuckets::add_to_earlier(int parameter, const at::Tensor& gradient) {
  ParameterState& state = *states_[parameter];
  if (uses_[parameter] != 1) return false;
  if (state.grad.defined()) {
    state.grad += gradient;
    if (is_prepared_) take_in(state, state.grad);
    return true;
  }
  if (!is_prepared_ || !plan_.ddp.gradient_as_bucket_view) return false;
  take_in(state, gradient);
  return true;
}

void GradientBuckets::complete(ParameterState& state) {
  state.complete_gradient();
  if (is_prepared_) take_in(state, state.grad);
}

void GradientBuckets::take_in(ParameterState& state, const at::Tensor& gradient) {
  const int parameter = state.layout.parameter;
  at::Tensor& view = view_of(parameter);
  const int ranks = group_->size();
  if (gradient.is_alias_of(view)) {
    view.div_(ranks);
  } else {
    at::mul_out(view, gradient, at::native::wrapped_scalar_tensor(1.0 / ranks));
    if (plan_.ddp.gradient_as_bucket_view) state.grad = view;
  }
  ++buckets_[places_[parameter].bucket].arrived;
}

// ---- reductions ----

void GradientBuckets::reduce(int number) {
  Bucket& bucket = buckets_.at(static_cast<std::size_t>(number));
  if (!is_prepared_ || bucket.arrived != bucket.views.size()) {
    throw ScheduleBroken(
        fmt::format("bucket {} is reduced with {} of {} gradients", number, bucket.arrived, bucket.views.size()));
  }
  listener_.called(-1, {CollectiveKind::AllReduce, bucket.sum.scalar_type(), bucket.sum.numel(),
                        static_cast<std::int64_t>(bucket.sum.nbytes()), MeshDimension::Replicate, group_->size()});
  bucket.pending = group_->all_reduce(bucket.sum, ReduceOp::Sum);
  has_reduced_ = true;
}

void GradientBuckets::reduce_used_map() {
  std::int64_t row = 0;
  for (std::size_t p = 0; p < states_.size(); ++p) {
    if (!states_[p]->parameter->trainable) continue;
    used_map_.select(0, row++).fill_(is_unused(static_cast<int>(p)) ? 0 : 1);
  }
  listener_.called(-1, {CollectiveKind::AllReduce, used_map_.scalar_type(), used_map_.numel(),
                        static_cast<std::int64_t>(used_map_.nbytes()), MeshDimension::Replicate, group_->size()});
  used_map_pending_ = group_->all_reduce(used_map_, ReduceOp::Sum);
}

void GradientBuckets::finish() {
  if (!std::exchange(is_prepared_, false)) return;
  for (Bucket& bucket : buckets_) {
    if (!bucket.pending) throw ScheduleBroken("a backward ends before all buckets are reduced");
    std::exchange(bucket.pending, nullptr)->wait();
    copy_out(bucket);
  }
  if (used_map_pending_) std::exchange(used_map_pending_, nullptr)->wait();
}

// What no rank has used stays without a gradient; all ranks run one program, so what is unused here is so everywhere.
void GradientBuckets::copy_out(Bucket& bucket) {
  if (plan_.ddp.gradient_as_bucket_view) return;
  for (std::size_t i = 0; i < bucket.views.size(); ++i) {
    const int parameter = bucket.of->parameters[i];
    if (!is_unused(parameter)) states_[parameter]->grad.copy_(bucket.views[i]);
  }
}

void GradientBuckets::zero_grad() {
  for (ParameterState* state : states_) {
    const bool is_view = plan_.ddp.gradient_as_bucket_view && group_ != nullptr;
    if (!is_view) empty_storage(state->grad);
    state->grad = at::Tensor();
  }
}

}  // namespace fsdp::executor

#pragma once

// Small transformers and clusters for the tests of the planner.

#include <cstdint>
#include <string>

#include "core/cluster/cluster.h"
#include "core/spec/model_spec.h"

namespace fsdp::planner {

struct SmallTransformer {
  int layers = 3;
  int hidden = 64;
  int heads = 2;
  int vocabulary = 256;
  int batch = 2;
  int sequence = 64;
  bool tied = false;
  bool mixed_precision = true;
  bool cached = false;   ///< Layers that keep keys and values while they train, until one is checkpointed.
  int experts = 0;       ///< Above 0: a mixture of so many in place of each MLP.
  bool stacked = false;  ///< Their parameters are stacked (transformers 5).
};

/// A decoder-only transformer: embedding, layers, norm, head, loss.
ModelSpec small_transformer(const SmallTransformer& sizes = {});

/// An encoder and a decoder that share an embedding with the head (T5). `layers` each.
ModelSpec small_encoder_decoder(const SmallTransformer& sizes = {});

/// Qwen3-TTS with few and narrow layers (docs/examples).
ModelSpec tiny_tts();

/// T4s over PCIe, with this much memory for a process.
Cluster small_cluster(int gpus_per_node, int nodes, Bytes usable_memory);

}  // namespace fsdp::planner

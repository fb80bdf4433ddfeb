#pragma once

// Shared by the files that contain kernels; all other files include executor/kernels/kernels.h.

#include "executor/kernels/kernels.h"

namespace fsdp::executor::kernels {

Tensors linear(const OpRun& run);
Tensors embedding(const OpRun& run);
Tensors conv1d(const OpRun& run);
Tensors conv2d(const OpRun& run);
Tensors parameter(const OpRun& run);
Tensors max_pool2d(const OpRun& run);
Tensors adaptive_avg_pool2d(const OpRun& run);

Tensors rms_norm(const OpRun& run);
Tensors layer_norm(const OpRun& run);
Tensors group_norm(const OpRun& run);
Tensors batch_norm(const OpRun& run);

Tensors rotary_table(const OpRun& run);
Tensors rotary(const OpRun& run);
Tensors attention(const OpRun& run);
Tensors kv_cache(const OpRun& run);

Tensors silu(const OpRun& run);
Tensors gelu(const OpRun& run);
Tensors relu(const OpRun& run);
Tensors sigmoid(const OpRun& run);
Tensors tanh(const OpRun& run);
Tensors mul(const OpRun& run);
Tensors add(const OpRun& run);
Tensors sub(const OpRun& run);
Tensors scale(const OpRun& run);
Tensors softcap(const OpRun& run);
Tensors dropout(const OpRun& run);
Tensors cast(const OpRun& run);
Tensors softmax(const OpRun& run);
Tensors mean(const OpRun& run);
Tensors sum(const OpRun& run);
Tensors std_deviation(const OpRun& run);

Tensors detach(const OpRun& run);
Tensors reshape(const OpRun& run);
Tensors transpose(const OpRun& run);
Tensors slice(const OpRun& run);
Tensors select(const OpRun& run);
Tensors expand(const OpRun& run);
Tensors split(const OpRun& run);
Tensors contiguous(const OpRun& run);
Tensors cat(const OpRun& run);
Tensors stack(const OpRun& run);
Tensors set_slice(const OpRun& run);
Tensors index(const OpRun& run);
Tensors pad(const OpRun& run);
Tensors constant(const OpRun& run);

Tensors router(const OpRun& run);
Tensors experts(const OpRun& run);
Tensors grouped_experts(const OpRun& run);
Tensors dense_experts(const OpRun& run);

Tensors cross_entropy(const OpRun& run);
Tensors linear_cross_entropy(const OpRun& run);
Tensors mse_loss(const OpRun& run);

}  // namespace fsdp::executor::kernels

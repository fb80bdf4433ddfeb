#pragma once

namespace fsdp {

/// How the GPUs of one node reach each other.
enum class IntraLink {
  NvSwitch,  ///< NVLink through a switch: every pair has the full rate of the GPU.
  NvLink,    ///< NVLink without a switch (mesh or bridge): neighbors share the rate.
  PciePeer,  ///< PCIe with peer-to-peer copies: under one PCIe switch, if the driver allows it.
  PcieHost,  ///< PCIe through host memory (NCCL's SHM transport): most consumer and T4 boxes.
};

}  // namespace fsdp

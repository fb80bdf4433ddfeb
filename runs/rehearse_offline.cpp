// Sources: the environment variables in the documentation of wandb, mlflow, comet_ml, neptune, clearml, swanlab and
// huggingface_hub. python/fsdp_rehearsal/uploads.py answers calls that request the network by an argument.

#include "runs/rehearse_offline.h"

#include <cstdlib>

namespace fsdp::runs {

std::vector<std::pair<std::string, std::string>> offline_environment(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> result = {
      {"WANDB_MODE", "disabled"},
      {"MLFLOW_TRACKING_URI", "file://" + folder + "/mlruns"},
      {"COMET_MODE", "DISABLED"},
      {"COMET_START_ONLINE", "0"},
      {"COMET_OFFLINE_DIRECTORY", folder},
      {"NEPTUNE_MODE", "debug"},
      {"CLEARML_OFFLINE_MODE", "1"},
      {"SWANLAB_MODE", "disabled"},
      {"HF_HUB_DISABLE_TELEMETRY", "1"},
      {"DO_NOT_TRACK", "1"},
      // Otherwise MLflow 3 refuses a folder as its store.
      {"MLFLOW_ALLOW_FILE_STORE", "true"},
      {"MLFLOW_DISABLE_TELEMETRY", "true"},
  };
  // "0" fetches missing files into the overlay, again in each run.
  if (std::getenv("HF_HUB_OFFLINE") == nullptr) result.emplace_back("HF_HUB_OFFLINE", "1");
  return result;
}

}  // namespace fsdp::runs

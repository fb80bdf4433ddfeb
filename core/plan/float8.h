#pragma once

// Linear layers that multiply in 8-bit floats: Float8Linear of torchao, by which convert_to_float8_training replaces
// torch.nn.Linear before the model is wrapped.
//
//   recipe         what shares a scale: a whole tensor, or each row. Everything is cast when it is multiplied
//   all_gather     FSDP2 gathers weights in 8 bits: each rank casts its part before, with the scale of the whole weight
//   precompute     all these scales in one all-reduce after the optimizer's step, not one for each weight and gather
//
// Parameters, gradients and the optimizer keep their dtypes, and the layers save their inputs as torch.nn.Linear does.
//
// Sources: torchao 0.18.0, float8/config.py (Float8LinearConfig, from_recipe_name), float8_linear.py,
// float8_linear_utils.py (convert_to_float8_training, _auto_filter_for_recipe); torchtitan 0.2.2,
// components/quantization/float8.py and utils.py (module_filter_fn).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/model/op.h"

namespace fsdp {

struct Model;
struct Plan;

/// The release whose layers are predicted.
inline constexpr std::string_view kTorchaoVersion = "0.18.0";

/// In the place of a name, torchao's filter by size.
inline constexpr std::string_view kFloat8AutoFilter = "auto_filter_small_kn";

/// Arguments of Float8LinearConfig, and which layers are converted.
struct Float8Training {
  Float8Recipe recipe = Float8Recipe::Tensorwise;
  bool all_gather = false;   ///< enable_fsdp_float8_all_gather.
  bool precompute = false;   ///< precompute_float8_dynamic_scale_for_fsdp. REQUIRES: all_gather.
  bool skips_small = false;  ///< "auto_filter_small_kn": layers that torchao's _auto_filter_for_recipe leaves out.
  /// Parts of names whose layers stay as they are (filter_fqns). Empty: the output head alone does,
  std::vector<std::string> skip = {};
  bool skips_none = false;  ///< unless this says that it is converted, too.

  bool operator==(const Float8Training&) const = default;
};

/// "tensorwise", then in any order ",all_gather", ",precompute" and ",skip=output+auto_filter_small_kn", or
/// ",skip=none". Error, at `where`: every unknown word, with the nearest, and what torchao refuses.
Result<Float8Training> parse_float8(std::string_view text, std::string_view where);

/// The text that parse_float8 reads as this.
std::string to_text(const Float8Training& float8);

/// "float8 linear layers (tensorwise, gathered in float8)".
std::string sentence_of(const Float8Training& float8);

/// Whether a layer with a weight [rows, columns] is converted, by its shape and by the parts of names in `skip`.
/// `name` is fully qualified.
bool is_converted(const Float8Training& float8, std::string_view name, bool is_output_head, std::int64_t rows,
                  std::int64_t columns);

/// "convert_to_float8_training(model, config=...)", with its filter. `head` is the name of the output head.
std::string python_of(const Float8Training& float8, std::string_view head);

/// Whether the scales of weights that are gathered in 8 bits are computed after the optimizer's step.
bool precomputes_scales(const Plan& plan);

/// Why such layers cannot be trained, or are not predicted, under this plan.
std::optional<Error> float8_misfit(const Plan& plan, const Model& model);

}  // namespace fsdp

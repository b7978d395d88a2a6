/// Proves that one device or precision computes the same as another. Both get the same weights and inputs; the outputs, the outputs of
/// single layers, the gradients and the weights after a step are compared.
///
///   PrecisionValidator validator({.samples = 100});
///   RunConfig npu = config, cpu = config;
///   npu.device = "sim_npu", cpu.device = "cpu";
///   const ValidationReport report = validator.validate(npu, cpu);
///   std::cout << report.str();
///
/// **What agrees.** Two tensors a (judged) and b (reference) agree if
///
///     max|a - b| <= max(atol + rtol * max|b|, max|b' - b|)
///
/// and non-finite values are at the same positions. The scale is the largest magnitude of the tensor, not that of the single element,
/// because an element near 0 is a sum whose terms cancelled, and its rounding error depends on the size of the terms. b' is the result of
/// the reference after a random change of every weight by up to `noise` roundings. A rounding is a unit in the last place of the coarser of
/// the two dtypes, times 16 in fp32, whose sums are rounded as well. Different kernels may change a result by as much as b' differs from b,
/// even if a gradient is badly conditioned; a fault changes it by more. (Higham, "Accuracy and Stability of Numerical Algorithms", 1.5: the
/// forward error is at most the condition times the backward error.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/bench/samples.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// Options for the comparison of two forms of one model: PrecisionValidator::compare_forms.
struct FormsOptions {
  int64_t batch = 8;    ///< samples of the random input
  int64_t image = 0;    ///< height and width of the input; 0: the model's, or 224 if it accepts any
  double limit = 1e-4;  ///< largest |a - b| of the outputs and of each layer
  int64_t pairs = 10;   ///< timed predictions of each form, interleaved
  int64_t epochs = 3;   ///< epochs of a training after these comparisons; 0: none
  int64_t batches = 4;  ///< batches per epoch
  double lr = 1e-4;     ///< learning rate of AdamW
};

struct PrecisionValidatorOptions {
  int64_t samples = 100;                                        ///< samples whose outputs are compared; fewer if the data set has fewer
  int64_t layers_every = 10;                                    ///< every n-th sample runs alone and has its layers compared; 0: none
  std::vector<std::string> layer_types = {"Linear", "Conv2d"};  ///< classes of the compared layers, with the names of Task::module_types()
  /// Layers by name instead of by class; '*' matches anything. For two forms of a model, "NAME=OTHER" compares layer NAME of the judged
  /// form with layer OTHER of the reference.
  std::vector<std::string> layer_names{};
  double flag_above = 1e-4;  ///< value of |a - b| above which a layer is flagged, unless rounding explains more
  double rtol = 1e-5;
  double atol = 1e-8;
  /// If a side computes in bf16 or fp16, takes default_tolerance() of align/compare.hpp for that dtype instead of rtol and atol.
  bool tolerance_by_dtype = true;
  double noise = 8;         ///< number of roundings by which the weights are changed for b', see above; 0: rounding explains no difference
  int64_t train_steps = 5;  ///< steps of the short training run, after the step whose gradients and weights are compared
  double large = 1e4;       ///< factor of the large inputs
  FormsOptions forms{};     ///< for comparisons of two forms of a model
};

/// One row of the report. If a check compares several tensors, the row shows the one that is nearest to its limit, or farthest beyond it.
struct ValidationCheck {
  std::string name;
  double max_diff = 0;   ///< largest |a - b|
  double mean_diff = 0;  ///< mean |a - b|
  double relative = 0;   ///< max_diff / max|b|; 0 if both are 0
  double allowed = 0;    ///< limit of max_diff
  bool passed = true;
  std::string worst{};  ///< tensor, sample or step to which these numbers belong
  std::string note{};   ///< facts that the numbers do not show
};

/// The difference of one layer's output or one parameter's gradient. Over several samples: the largest max_diff and the mean of mean_diff.
struct ValidatedTensor {
  std::string name;
  std::string type{};  ///< class of the layer
  std::vector<int64_t> shape{};
  double max_diff = 0, mean_diff = 0;
  double reference_max = 0;  ///< largest |b|
  double allowed = 0;        ///< limit of the sample whose max_diff came nearest to it
  bool flagged = false;
  std::string note{};  ///< the reason if the tensor was not compared; otherwise ""
};

/// One side of a comparison.
struct ValidatedSide {
  std::string device, precision;
  std::string dtype;       ///< dtype in which the forward pass computes: fp32, bf16, fp16
  bool emulated = false;   ///< this dtype is emulated by fp32 kernels that round
  bool saturates = false;  ///< an overflow results in the largest number, not inf
  std::string str() const;
};

struct ValidationReport {
  ValidatedSide judged, reference;
  double rtol = 0, atol = 0;     ///< the values used
  std::string tolerance_source;  ///< "from the options" or, if the dtype determined the values, "for bf16"
  double noise = 0;
  int64_t samples = 0;  ///< number of compared samples
  /// Over the samples: the mean of their largest differences, the mean of their mean differences, and the largest difference.
  double avg_max_diff = 0, avg_mean_diff = 0, max_max_diff = 0;
  double pass_rate = 0;  ///< fraction of the samples whose outputs agree
  bool all_passed = false;
  std::vector<ValidationCheck> checks{};
  std::vector<ValidatedTensor> layers{};                ///< layers in forward order
  std::vector<ValidatedTensor> gradients{};             ///< gradients in parameter order
  std::vector<double> judged_losses, reference_losses;  ///< for the first step and the short training run
  std::vector<std::string> notes{};

  /// Returns the first flagged layer in forward order, where the sides begin to differ; nullptr if there is none.
  const ValidatedTensor* first_flagged() const;
};

/// Reports the verdict, both sides, the checks, and flagged layers and gradients. JSON has all layers and gradients.
Report report_of(const ValidationReport& validation);

/// Mean losses of both forms over one epoch.
struct FormsEpoch {
  double form = 0, original = 0;
};

/// The comparison of an original model with another form of it, for example one that NPUs prefer.
struct FormsReport {
  ValidatedSide form, original;
  std::vector<int64_t> input;             ///< shape of the input
  double max_diff = 0, mean_diff = 0;     ///< over the outputs, in evaluation mode
  double reference_max = 0;               ///< largest |output| of the original
  double limit = 0;                       ///< limit of max_diff
  double form_ms = 0, original_ms = 0;    ///< median time of a prediction, including the copies of its input and output
  SpeedRatio speed;                       ///< speed of the form relative to the original
  std::vector<std::string> converted{};   ///< weights of the form that were converted from other weights of the original
  std::vector<ValidatedTensor> layers{};  ///< layers of both forms, in forward order
  std::vector<FormsEpoch> epochs{};       ///< mean losses of the training with AdamW
  double largest_loss_difference = 0;     ///< over the epochs, relative to the original's loss
  bool outputs_agree = false, layers_agree = true, training_agrees = true;
  std::vector<std::string> notes{};

  bool passed() const { return outputs_agree && layers_agree && training_agrees; }
};

Report report_of(const FormsReport& forms);

/// Runs the checks: outputs, layers, other kinds of inputs (a batch of one, the last partial batch, zeros, large values), gradients, one
/// optimizer step, a short training run and an evaluation after it. docs/validate.md explains them.
class PrecisionValidator {
 public:
  /// Error(Usage) for invalid numbers.
  explicit PrecisionValidator(PrecisionValidatorOptions options = {});

  /// Builds both runs, gives both the weights and the data of the reference, and compares them. The two runs may differ in any option that
  /// does not change the model's parameters: device, precision, kernels. No file is written. Both draw random masks on the host (rng:
  /// portable), since otherwise dropout would differ between devices.
  ///
  /// Error(Usage) if both configurations are the same, or if the model has no layer of `layer_types`; Error(Checkpoint) if their models
  /// differ; errors of a device are rethrown.
  ValidationReport validate(const RunConfig& judged, const RunConfig& reference, const Parts& parts = builtin_parts()) const;

  /// Compares `form` with `original`, two models that compute the same with different layers (for example one fused projection of query,
  /// key and value, or three separate ones). The original's weights are converted (models/weights.hpp) and copied into the form. Both get
  /// one random batch, with which their outputs and layers are compared. Both are timed alternately, and trained on the same random batches
  /// with AdamW. `config` determines device, precision, task, seed and threads; with two configurations, each one determines those of its
  /// model. No data are opened.
  ///
  /// Afterwards, the original has its previous weights and the form has the converted ones; both modules are still on the device.
  /// Error(Checkpoint) if the weights cannot be converted; Error(Usage) for `layer_names` that match no layer.
  FormsReport compare_forms(const Model& form, const Model& original, const RunConfig& config = {},
                            const Parts& parts = builtin_parts()) const;
  FormsReport compare_forms(const Model& form, const RunConfig& form_config, const Model& original, const RunConfig& original_config,
                            const Parts& parts = builtin_parts()) const;
  /// Compares the models of two configurations in the same way.
  FormsReport compare_forms(const RunConfig& form, const RunConfig& original, const Parts& parts = builtin_parts()) const;

  const PrecisionValidatorOptions& options() const { return options_; }

 private:
  PrecisionValidatorOptions options_;
};

}  // namespace npu_train

// The checks of a PrecisionValidator, in execution order.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/data/loader.hpp"
#include "precision_validator_judge.hpp"
#include "precision_validator_side.hpp"

namespace npu_train::detail {

class ValidationRun {
 public:
  ValidationRun(const PrecisionValidatorOptions& options, const RunConfig& judged, const RunConfig& reference, const Parts& parts);
  ValidationReport run();

 private:
  // The results of both sides, and of the reference with perturbed weights, for the same input.
  struct Three {
    at::Tensor judged, reference, shaken;
  };
  // Collects verdicts and keeps the worst.
  struct Worst {
    void add(const Verdict& verdict, const std::string& name);
    ValidationCheck row(const std::string& check) const;
    Verdict verdict;
    std::string name;
    double mean_diffs = 0;
    int64_t count = 0, failed = 0;
  };

  void choose_tolerance();
  Three predict(const at::Tensor& input);
  Verdict judge(const Three& values) const;
  void outputs();
  void layers(const at::Tensor& sample);
  ValidatedTensor& layer_row(const SeenOutput& seen);
  void judge_layers();
  void input_kinds();
  void one_input(const std::string& name, const at::Tensor& input, const std::string& note);
  void large_inputs();
  void first_step();
  void gradients();
  void weights_after(const HostTensors& before, const HostTensors& after);
  void statistics_after(const HostTensors& after);
  void training();
  bool take_step(bool share);
  void losses();
  Batch next_training_batch();
  Batch partial_batch(std::string& note);
  Loader& evaluation_loader();

  const PrecisionValidatorOptions& options_;
  ValidationSide reference_, judged_;
  std::unique_ptr<ValidationSide> shaken_;  // the reference with perturbed weights; nullptr without noise
  double shake_ = 0;                        // relative perturbation of its weights
  Tolerance tolerance_;                     // for results of the forward and backward pass
  std::optional<Batch> first_;              // first batch of the evaluation
  int64_t layer_samples_ = 0;
  bool epoch_open_ = false;
  int64_t epoch_ = 0;
  TakenStep judged_step_, reference_step_, shaken_step_;
  std::vector<double> shaken_losses_;
  bool stepped_ = true;
  ValidationReport report_;
};

}  // namespace npu_train::detail

/// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): steps by an orthogonalised momentum.
#pragma once

#include <string>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;  ///< decoupled: p -= lr * weight_decay * p
  double momentum = 0.95;
  bool nesterov = true;
  double eps = 1e-7;     ///< least norm by which a momentum is divided
  int64_t ns_steps = 5;  ///< Newton-Schulz iterations
  std::string adjust_lr_fn =
      "original";                    ///< original: lr * sqrt(max(1, rows / columns)) | match_rms_adamw: lr * 0.2 * sqrt(max(rows, columns))
  std::vector<std::string> adamw{};  ///< patterns (as in model.freeze) of matrices that AdamW updates: embeddings, head
  std::vector<double> betas = {0.9, 0.999};  ///< AdamW's betas
  double adamw_eps = 1e-8;                   ///< AdamW's eps
  bool no_decay = false;                     ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<MuonOptions>& config_table();
};

/// For matrices, same as torch.optim.Muon, except that the iteration computes in fp32 and not in bf16, which makes it independent of the
/// machine. Parameters of more dimensions (convolutions) are treated as matrices [first, product of others], as in the paper's code. AdamW
/// updates vectors, and parameters that `adamw` selects, with the same lr and weight_decay. Needs complete parameters, and takes no slices.
class Muon final : public Optimizer {
 public:
  /// Error(Usage) for options out of range, and for a pattern of `adamw` that matches no parameter.
  explicit Muon(ParameterSet parameters, MuonOptions options = {});
  std::string name() const override { return "muon"; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  bool is_matrix(const Parameter& parameter) const;
  static at::Tensor orthogonal(const at::Tensor& matrix, double eps, int64_t steps);

  MuonOptions options_;
};

}  // namespace npu_train

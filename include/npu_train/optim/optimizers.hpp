/// The optimizers, each with its options. Common parts (groups, state, the learning rate) are in optim/optimizer.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {

// Stochastic gradient descent with momentum, on the fused kernel of ATen.

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0.9;    ///< 0: no momentum and no memory for it
  double weight_decay = 0;  ///< L2: added to the gradient
  double dampening = 0;     ///< share of a gradient that does not enter the momentum, after the first step
  bool maximize = false;    ///< follows the gradient uphill
  bool nesterov = false;    ///< Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013
  bool no_decay = false;    ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<SgdOptions>& config_table();
};

/// g += weight_decay * p;  m = momentum * m + (1 - dampening) * g, in the first step m = g;  p -= lr * m (nesterov: p -= lr * (g + momentum
/// * m)). Same as torch.optim.SGD. The momentum starts as zeros, so it stays defined if the first step is skipped. fp16 and bf16 parameters
/// are updated in fp32 arithmetic and rounded once.
class Sgd final : public Optimizer {
 public:
  /// Error(Usage) for options out of range, or nesterov without momentum or with dampening.
  explicit Sgd(ParameterSet parameters, SgdOptions options = {});
  std::string name() const override { return "sgd"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  void update_damped(Bucket& bucket, double decay);
  void update_low(Bucket& bucket, double decay);
  void fused(at::TensorList parameters, at::TensorList gradients, at::TensorList momentum, const Bucket& bucket, double decay) const;

  SgdOptions options_;
};

// Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015), on the fused kernel of ATen.

struct AdamOptions {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};  ///< decay of the running means of gradients and of their squares
  double eps = 1e-8;
  double weight_decay = 0;  ///< L2: added to the gradient (AdamW decouples it)
  bool amsgrad = false;     ///< divides by the largest mean of squares so far (Reddi et al., ICLR 2018)
  bool maximize = false;    ///< follows the gradient uphill
  bool no_decay = false;    ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<AdamOptions>& config_table();
};

/// Same as torch.optim.Adam. Each parameter counts its steps on the device; skipped steps do not count.
class Adam final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Adam(ParameterSet parameters, AdamOptions options = {});
  std::string name() const override { return "adam"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  AdamOptions options_;
};

// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019), on the fused kernel of ATen.

struct AdamWOptions {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};  ///< decay of the running means of gradients and of their squares
  double eps = 1e-8;
  double weight_decay = 0.01;  ///< decoupled from the gradient: p -= lr * weight_decay * p
  bool amsgrad = false;        ///< divides by the largest mean of squares so far (Reddi et al., ICLR 2018)
  bool maximize = false;       ///< follows the gradient uphill
  bool no_decay = false;       ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<AdamWOptions>& config_table();
};

/// Same as torch.optim.AdamW. Each parameter counts its steps on the device; skipped steps do not count.
class AdamW final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit AdamW(ParameterSet parameters, AdamWOptions options = {});
  std::string name() const override { return "adamw"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  AdamWOptions options_;
};

// LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020), for large batches.

struct LambOptions {
  double lr = 2e-3;
  std::vector<double> betas = {0.9, 0.999};  ///< decay of the running means of gradients and of their squares
  double eps = 1e-6;
  double weight_decay = 0.01;  ///< added to the update before the trust ratio is computed
  bool no_decay = false;       ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<LambOptions>& config_table();
};

/// Algorithm 2 of the paper with bias correction: r = m_hat / (sqrt(v_hat) + eps) + weight_decay * p, and per tensor p -= lr * (|p| / |r|)
/// * r, where the ratio is 1 if a norm is 0. Computed in fp32 (fp64 for fp64 parameters); fp16 and bf16 parameters are rounded once. On a
/// CPU, and for slices, the norms are those of SquaredNorm, which do not depend on the order of additions.
class Lamb final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Lamb(ParameterSet parameters, LambOptions options = {});
  std::string name() const override { return "lamb"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  struct Move;
  Move move(const Bucket& bucket, size_t i) const;
  static at::Tensor squares(const at::Tensor& parameter, const at::Tensor& tensor);
  void apply(Bucket& bucket, size_t i, Move& move, const at::Tensor& weight_norm, const at::Tensor& update_norm) const;

  LambOptions options_;
};

// RMSprop (Hinton, "Neural Networks for Machine Learning", lecture 6, 2012), as in PyTorch or as in TensorFlow.

struct RmsPropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  ///< decay of the running mean of squares
  double eps = 1e-8;
  double momentum = 0;
  double weight_decay = 0;  ///< L2: added to the gradient
  bool centered = false;    ///< divides by the standard deviation instead of the root of the mean of squares
  bool tensorflow = false;  ///< TensorFlow's variant: eps inside the root, a mean of squares that starts at 1, and lr inside the momentum
  bool no_decay = false;    ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<RmsPropOptions>& config_table();
};

/// Same as torch.optim.RMSprop; with `tensorflow` the same as timm's RMSpropTF, for networks whose settings come from TensorFlow
/// (EfficientNet, MobileNet).
class RmsProp final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit RmsProp(ParameterSet parameters, RmsPropOptions options = {});
  std::string name() const override { return "rmsprop"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  RmsPropOptions options_;
};

// Adagrad (Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", JMLR 2011).

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;                   ///< the learning rate in step t is lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0;               ///< L2: added to the gradient
  double initial_accumulator_value = 0;  ///< initial value of the sums of squares
  double eps = 1e-10;
  bool no_decay = false;  ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<AdagradOptions>& config_table();
};

/// Same as torch.optim.Adagrad.
class Adagrad final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Adagrad(ParameterSet parameters, AdagradOptions options = {});
  std::string name() const override { return "adagrad"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  AdagradOptions options_;
};

// Adadelta (Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012).

struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;  ///< decay of the running means of squares
  double eps = 1e-6;
  double weight_decay = 0;  ///< L2: added to the gradient
  bool no_decay = false;    ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<AdadeltaOptions>& config_table();
};

/// Same as torch.optim.Adadelta.
class Adadelta final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Adadelta(ParameterSet parameters, AdadeltaOptions options = {});
  std::string name() const override { return "adadelta"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  AdadeltaOptions options_;
};

// Adafactor (Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018).

struct AdafactorOptions {
  double lr = 1e-2;                     ///< upper bound of the relative step
  double beta2_decay = -0.8;            ///< step t forgets the share t^beta2_decay of the mean of squares
  std::vector<double> eps = {0, 1e-3};  ///< least root of the mean of squares (0: fp32's epsilon), and least norm of the weights
  double d = 1;                         ///< limit of the update's root mean square
  double weight_decay = 0;              ///< decoupled: p -= lr * weight_decay * p
  bool no_decay = false;                ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<AdafactorOptions>& config_table();
};

/// Same as torch.optim.Adafactor: the state of a matrix is one number for each row and column, and the step is relative to the norm of the
/// parameter. Needs complete parameters, and therefore takes no slices.
class Adafactor final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Adafactor(ParameterSet parameters, AdafactorOptions options = {});
  std::string name() const override { return "adafactor"; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  AdafactorOptions options_;
};

// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023): steps by the sign of a momentum, with one state per
// parameter.

struct LionOptions {
  double lr = 1e-4;                         ///< should be 3 to 10 times smaller than AdamW's
  std::vector<double> betas = {0.9, 0.99};  ///< share of the momentum in the step, and decay of the momentum
  double weight_decay = 0;                  ///< decoupled: p -= lr * weight_decay * p
  bool no_decay = false;                    ///< no weight decay for biases and normalisation parameters
  static const ConfigTable<LionOptions>& config_table();
};

/// Same as timm's Lion and the reference implementation (google/automl).
class Lion final : public Optimizer {
 public:
  /// Error(Usage) for options out of range.
  explicit Lion(ParameterSet parameters, LionOptions options = {});
  std::string name() const override { return "lion"; }
  bool takes_slices() const override { return true; }
  ConfigNode options() const override { return to_node(options_); }

 protected:
  void update(Bucket& bucket) override;

 private:
  LionOptions options_;
};

// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): steps by an orthogonalised momentum.

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
/// machine. A parameter with more than two dimensions (a convolution) is treated as a matrix [first dimension, product of the others], as
/// in the paper's code. AdamW updates vectors, and parameters that `adamw` selects, with the same lr and weight_decay. Needs complete
/// parameters, and therefore takes no slices.
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

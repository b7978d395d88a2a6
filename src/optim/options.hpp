// Code that several optimizers share.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/ones_like.h>

#include <cmath>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {

/// The slots of the Adam family, in the order in which they are added.
enum AdamSlots { kMean, kSquare, kStep, kLargestSquare };

/// Returns 1 - beta^step without cancellation.
inline at::Tensor bias_correction(double beta, const at::Tensor& step) {
  return beta == 0 ? at::ones_like(step) : at::expm1(step * std::log(beta)).neg_();
}

inline void check_at_least_zero(const char* where, const char* name, double value) {
  check(value >= 0 && value < 1e30, ErrorKind::Usage, where, name, " is ", value, "; it must be at least 0 and less than 1e30");
}

inline void check_complete(const char* where, const Parameter& parameter) {
  check(!parameter.is_slice(), ErrorKind::Usage, where, "needs complete parameters, and ", parameter.name,
        " is a slice of one; allowed with it: trainer.strategy=single or ddp");
}

inline void check_share(const char* where, const char* name, double value) {
  check(value >= 0 && value <= 1, ErrorKind::Usage, where, name, " is ", value, "; it must be between 0 and 1");
}

inline void check_betas(const char* where, const std::vector<double>& betas) {
  check(betas.size() == 2, ErrorKind::Usage, where, "betas has ", betas.size(), " numbers; it needs 2, such as [0.9, 0.999]");
  for (const double beta : betas)
    check(beta >= 0 && beta < 1, ErrorKind::Usage, where, "betas has a ", beta, "; each must be at least 0 and less than 1");
}

template <class Options>
void check_adam_options(const char* where, const Options& o) {
  check_at_least_zero(where, "lr", o.lr);
  check_at_least_zero(where, "eps", o.eps);
  check_at_least_zero(where, "weight_decay", o.weight_decay);
  check_betas(where, o.betas);
}

}  // namespace npu_train::detail

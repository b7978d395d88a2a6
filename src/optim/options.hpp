// Shared parts of the optimizers.
#pragma once

#include "npu_train/core/error.hpp"

namespace npu_train::detail {

/// The slots of the Adam family, in the order in which they are added.
enum AdamSlots { kMean, kSquare, kStep };

inline void check_at_least_zero(const char* where, const char* name, double value) {
  check(value >= 0 && value < 1e30, ErrorKind::Usage, where, name, " is ", value, "; it must be at least 0 and less than 1e30");
}

template <class Options>
void check_adam_options(const char* where, const Options& o) {
  check_at_least_zero(where, "lr", o.lr);
  check_at_least_zero(where, "eps", o.eps);
  check_at_least_zero(where, "weight_decay", o.weight_decay);
  check(o.betas.size() == 2, ErrorKind::Usage, where, "betas has ", o.betas.size(), " numbers; it needs 2, such as [0.9, 0.999]");
  for (const double beta : o.betas)
    check(beta >= 0 && beta < 1, ErrorKind::Usage, where, "betas has a ", beta, "; each must be at least 0 and less than 1");
}

}  // namespace npu_train::detail

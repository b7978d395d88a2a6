/// Mixing the samples of a batch: mixup (Zhang et al. 2018) and cutmix (Yun et al. 2019). The draws depend on (seed, epoch, index of the
/// batch), so that a resumed run mixes equally.
#pragma once

#include <cstdint>

#include "npu_train/data/loader.hpp"

namespace npu_train {

struct MixOptions {
  double mixup_alpha = 0;   ///< 0: off
  double cutmix_alpha = 0;  ///< 0: off; with both on, one of them is drawn for each batch
  int64_t num_classes = 0;
  uint64_t seed = 0;
};

/// A hook for LoaderOptions::finish: sample i is mixed with sample i - 1 (the first with the last real one) by one weight per batch, and
/// "target" [N] becomes soft targets [N, num_classes]. Padded samples are not mixed. A batch with pending changes is mixed after them,
/// where it is used, with the same numbers. Error(Usage) if num_classes is not given or a strength is negative; Error(Data) for a label
/// outside the classes.
BatchHook mix_batches(const MixOptions& options);

/// Beta(alpha, alpha), by Johnk's method for alpha <= 1 and Marsaglia-Tsang gammas above.
double draw_beta(double alpha, Philox& rng);

}  // namespace npu_train

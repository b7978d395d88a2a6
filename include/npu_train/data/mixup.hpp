/// Mixes the samples of a batch: mixup (Zhang et al. 2018) and cutmix (Yun et al. 2019). The draws depend only on (seed, epoch, index of
/// the batch), so that a resumed run mixes in the same way.
#pragma once

#include <cstdint>

#include "npu_train/data/loader.hpp"

namespace npu_train {

struct MixOptions {
  double mixup_alpha = 0;   ///< 0: off
  double cutmix_alpha = 0;  ///< 0: off; if both are on, one of them is drawn per batch
  int64_t num_classes = 0;
  uint64_t seed = 0;
};

/// Returns a hook for LoaderOptions::finish. It mixes sample i with sample i - 1 (the first with the last real one) with one weight per
/// batch; "target" [N] becomes soft targets [N, num_classes]. Padded samples are not mixed. If transforms of the batch are pending, the
/// mixing is appended to them, with the same random numbers as without pending transforms. Error(Usage) if num_classes is not given or a
/// strength is negative; Error(Data) for a label outside the classes.
BatchHook mix_batches(const MixOptions& options);

/// Draws from Beta(alpha, alpha), by Johnk's method for alpha <= 1 and from Marsaglia-Tsang gammas above.
double draw_beta(double alpha, Philox& rng);

}  // namespace npu_train

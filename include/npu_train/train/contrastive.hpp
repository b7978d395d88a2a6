/// The task of CLIP: matching texts and images (Radford et al., "Learning Transferable Visual Models From Natural Language Supervision",
/// ICML 2021).
#pragma once

#include <memory>
#include <vector>

#include "npu_train/train/model_task.hpp"

namespace npu_train {

struct ContrastiveOptions {
  std::vector<Metric> metrics{};  ///< replaces the recalls; set by a configuration's list of metrics
};

/// Returns a task for a model that maps a batch of pairs to "image_features" and "text_features" [batch, features] of length 1, and
/// "scale", a scalar. Logits are scale times the products of the features. The loss is the mean of two cross entropies: for each image, of
/// its own text among all texts; for each text, of its own image among all images. In a training over several ranks, "all" are the pairs of
/// the micro-batches that the ranks process at the same time: N ranks with batch_size B have the loss and the gradients of one process with
/// batch_size N B, up to the rounding of sums. The loss of a validation compares within each batch. Padded pairs, from row Batch::size on,
/// are excluded. Metrics, in percent: text_recall1 and text_recall5, the share of images whose text is among the 1 or 5 most similar texts;
/// image_recall1 and image_recall5, the same for texts and their images. In training they compare the same pairs as the loss; in a
/// validation they compare all pairs of all ranks, whose features are kept in host memory. Error(Usage) for other outputs.
std::shared_ptr<Task> contrastive(Model model, ContrastiveOptions options = {});

}  // namespace npu_train

/// Tasks for the common cases: a network that maps a tensor to logits (classifier) or to values (regressor).
///
///   trainer.fit(npu_train::classifier(MyNet()), train_data, val_data);
///
/// `MyNet` is a torch::nn module with `at::Tensor forward(at::Tensor)`: a holder (TORCH_MODULE), a shared_ptr to the module, or a Model.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "npu_train/train/model_task.hpp"

namespace npu_train {

struct ClassifierOptions {
  double label_smoothing = 0;  ///< share of the target spread over all classes (Szegedy et al. 2016), in [0, 1)
  /// Factor on the loss of each class in training; empty: 1. The weighted losses are averaged over samples, so that the loss does not
  /// depend on how samples are divided into batches (torch divides by the weights of the batch instead).
  std::vector<double> class_weights{};
  double focal_gamma = 0;         ///< focal loss in training (Lin et al. 2017): the loss of a sample times (1 - p)^gamma; 0: off
  std::vector<Metric> metrics{};  ///< replaces acc1 and acc5; set by a configuration's list of metrics
};

/// Returns the weights N / (classes * N_c), where N_c is the number of samples of a class; their mean over the samples is 1 (scikit-learn's
/// class_weight="balanced"). Error(Data) for a class without samples.
std::vector<double> balanced_class_weights(const std::vector<int64_t>& samples);

/// Returns a task with cross entropy on logits [N, classes], for targets [N] (int64) or [N, classes] (probabilities), and the metrics acc1
/// and, with more than 5 classes, acc5 in percent. A "mask" [N] in the batch excludes padded samples from loss and metrics.
std::shared_ptr<Task> classifier(Model model, ClassifierOptions options = {});

struct MultilabelOptions {
  /// Factor on the loss of the positive targets of each class in training, as in torch's BCEWithLogitsLoss; empty: 1.
  std::vector<double> pos_weight{};
  std::vector<Metric> metrics{};  ///< replaces acc and map; set by a configuration's list of metrics
};

/// Returns a task for samples with any number of classes: binary cross entropy on logits [N, classes], averaged over samples and classes,
/// for targets [N, classes] from 0 to 1. Metric acc: the percentage of right decisions, one for each sample and class. Metric map: mean
/// average precision. A "mask" [N] in the batch excludes padded samples.
std::shared_ptr<Task> multilabel_classifier(Model model, MultilabelOptions options = {});

/// Returns a task with the mean squared error between outputs and targets of the same shape, and the metric mae (mean absolute error)
/// unless `metrics` are given.
std::shared_ptr<Task> regressor(Model model, std::vector<Metric> metrics = {});

template <class Net>
requires(!std::is_same_v<std::decay_t<Net>, Model>) std::shared_ptr<Task> classifier(Net net, ClassifierOptions options = {}) {
  return classifier(as_model(std::move(net)), std::move(options));
}

template <class Net>
requires(!std::is_same_v<std::decay_t<Net>, Model>) std::shared_ptr<Task> multilabel_classifier(Net net, MultilabelOptions options = {}) {
  return multilabel_classifier(as_model(std::move(net)), std::move(options));
}

template <class Net>
requires(!std::is_same_v<std::decay_t<Net>, Model>) std::shared_ptr<Task> regressor(Net net, std::vector<Metric> metrics = {}) {
  return regressor(as_model(std::move(net)), std::move(metrics));
}

}  // namespace npu_train

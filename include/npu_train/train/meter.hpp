/// Running averages of plain numbers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "npu_train/train/report.hpp"

namespace npu_train {

/// Weighted mean.
class MeanMeter {
 public:
  /// Adds a value; with weight 0 it is ignored, even if it is NaN.
  void add(double value, double weight = 1) {
    if (weight == 0) return;
    sum_ += value * weight;
    weight_ += weight;
  }
  double value() const { return weight_ > 0 ? sum_ / weight_ : 0; }
  double sum() const { return sum_; }
  double weight() const { return weight_; }
  /// Sets the values of sum() and weight() from a checkpoint.
  void restore(double sum, double weight) {
    sum_ = sum;
    weight_ = weight;
  }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

/// A mean for each name, in the order of first appearance. Non-finite values count: an average over a NaN is NaN.
class MetricMeter {
 public:
  void add(const Scalars& scalars, double weight) { add(scalars, std::vector<double>(scalars.size(), weight)); }
  /// Adds each scalar with its own weight.
  void add(const Scalars& scalars, const std::vector<double>& weights) {
    for (size_t i = 0; i < scalars.size(); ++i) at(i, scalars[i].first).add(scalars[i].second, weights[i]);
  }
  /// Returns the means, without those of names for which no value counted.
  Scalars value() const {
    Scalars out;
    for (const auto& [name, meter] : meters_)
      if (meter.weight() > 0) out.emplace_back(name, meter.value());
    return out;
  }
  void reset() { meters_.clear(); }
  const std::vector<std::pair<std::string, MeanMeter>>& meters() const { return meters_; }
  void restore(const std::string& name, double sum, double weight) {
    meters_.emplace_back(name, MeanMeter{});
    meters_.back().second.restore(sum, weight);
  }

 private:
  /// Returns the meter of `name`, moved to position `i`, so that the order is that of the newest scalars.
  MeanMeter& at(size_t i, const std::string& name) {
    for (size_t k = i; k < meters_.size(); ++k)
      if (meters_[k].first == name) {
        std::swap(meters_[i], meters_[k]);
        return meters_[i].second;
      }
    return meters_.insert(meters_.begin() + static_cast<std::ptrdiff_t>(i), {name, MeanMeter{}})->second;
  }

  std::vector<std::pair<std::string, MeanMeter>> meters_;
};

}  // namespace npu_train

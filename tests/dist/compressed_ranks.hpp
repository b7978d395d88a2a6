// Ranks that are threads and compress their gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "dist/in_process_group.hpp"
#include "npu_train/dist/gradient_reducer.hpp"

namespace npu_train::testing {

// Returns numbers of any size and sign, the same for equal arguments.
inline at::Tensor drawn(at::IntArrayRef sizes, int64_t seed) {
  const auto n = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  const auto x = at::arange(n, at::kDouble) * 0.7391 + 13.7 * static_cast<double>(seed);
  return (x.sin() * (3.1 * (x * 1.7).cos()).exp()).to(at::kFloat).reshape(sizes);
}

// Size of a parameter whose bucket has no padding, for up to 4 ranks.
inline constexpr int64_t kElements = 64 * 12 * 5;
inline ParameterSet one_vector() {
  ParameterSet out;
  out.add({.name = "vector", .value = at::zeros({kElements}).requires_grad_(true)});
  return out;
}

inline ParameterSet several() {
  ParameterSet out;
  const auto add = [&](const char* name, at::Tensor value) { out.add({.name = name, .value = value.requires_grad_(true)}); };
  add("conv", at::zeros({16, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
  add("bias", at::zeros({7}));
  add("matrix", at::zeros({61, 33}));
  add("transposed", at::zeros({40, 30}).t());
  add("double", at::zeros({65}, at::kDouble));
  return out;
}

using Gradient = std::function<at::Tensor(const Parameter&, int rank, int64_t window)>;
inline at::Tensor plain_gradient(const Parameter& p, int rank, int64_t window) {
  return drawn(p.value.sizes(), 100 * window + 10 * rank + static_cast<int64_t>(p.name.size())).to(p.value.scalar_type());
}

// The results of one rank in a window.
struct Seen {
  std::vector<at::Tensor> sums{};  // for each parameter, or for this rank's slice of it; undefined if no rank has a gradient
  int64_t bytes = 0, counted = 0;
};

class CompressedRank {
 public:
  CompressedRank(const std::shared_ptr<Network>& network, int rank, ParameterSet parameters, DistOptions options, Sharding sharding)
      : parameters_(std::move(parameters)),
        group_(std::make_shared<InProcessGroup>(network, rank)),
        reducer(parameters_, group_, options, sharding) {}

  Seen window(int64_t number, const Gradient& gradient, double scale = 1) {
    parameters_.zero_grad();
    reducer.own().zero_grad();
    reducer.set_gradient_scale(scale);
    reducer.begin_window(1);
    reducer.begin_backward(true);
    at::Tensor loss;
    for (const auto& p : parameters_) {
      const auto factor = gradient(p, group_->rank(), number);
      if (!factor.defined()) continue;
      const auto term = (p.value * factor * scale).sum().to(at::kDouble);
      loss = loss.defined() ? loss + term : term;
    }
    const auto before = group_->counts().bytes;
    loss.backward();
    reducer.finish();
    Seen out{.bytes = reducer.times().bytes(), .counted = group_->counts().bytes - before};
    for (const auto& p : reducer.own()) out.sums.push_back(p.value.grad().defined() ? p.value.grad().clone() : at::Tensor());
    return out;
  }
  int number() const { return group_->rank(); }
  int ranks() const { return group_->size(); }
  const ParameterSet& parameters() const { return parameters_; }

 private:
  ParameterSet parameters_;
  std::shared_ptr<InProcessGroup> group_;

 public:
  GradientReducer reducer;
};

struct Setting {
  int ranks = 2;
  std::string compression = "none";
  Sharding sharding = Sharding::None;
  double bucket_mib = 25;
  ParameterSet (*parameters)() = several;
  std::string group_size = "none";
  int64_t in_flight = 0;
  int64_t compression_start = 0;
};

// Returns what `body` returns on each rank.
template <class Result, class Fn>
std::vector<Result> of_ranks(const Setting& setting, Fn body, std::shared_ptr<Network> network = nullptr) {
  static_assert(!std::is_same_v<Result, bool>, "threads cannot write to neighbours in a std::vector<bool>");
  if (network == nullptr) network = std::make_shared<Network>(setting.ranks);
  std::vector<Result> out(static_cast<size_t>(setting.ranks));
  on_ranks(network->agreements, [&](int r) {
    const DistOptions options{.group_size = setting.group_size,
                              .compression = setting.compression,
                              .compression_start = setting.compression_start,
                              .bucket_mib = setting.bucket_mib,
                              .in_flight = setting.in_flight};
    CompressedRank rank(network, r, setting.parameters(), options, setting.sharding);
    out[static_cast<size_t>(r)] = body(rank);
  });
  return out;
}

inline std::vector<std::vector<Seen>> windows_of_ranks(const Setting& setting, int64_t windows, const Gradient& gradient = plain_gradient) {
  return of_ranks<std::vector<Seen>>(setting, [&](CompressedRank& rank) {
    std::vector<Seen> out;
    for (int64_t w = 0; w < windows; ++w) out.push_back(rank.window(w, gradient));
    return out;
  });
}

inline const std::vector<std::string> kCarrying{"int8",           "topk:0.05",  "topk:0.05+int8", "topk:0.05+bf16",
                                                "topk:0.05+fp16", "ratio:0.05", "ratio:0.2",      "powersgd:2"};

// Joins the compression errors of all ranks, as a checkpoint has them: the rows of the ranks, and the errors of the sums.
inline State joined(const std::vector<CompressionState>& of_ranks) {
  State out = of_ranks[0].shared;
  for (const auto& rank : of_ranks)
    for (const auto& p : rank.slices) {
      if (p.value.numel() == 0) continue;  // empty slices are not written to checkpoints
      auto& to = out.tensors["error/" + p.name];
      if (!to.defined()) to = at::full(p.whole().sizes(), kNaN, at::kFloat);
      to.view({-1}).narrow(0, p.begin, p.value.numel()).copy_(p.value);
    }
  return out;
}

}  // namespace npu_train::testing

#include "npu_train/dist/gradient_sharding.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr const char* kShardingWhere = "GradientSharding";

std::vector<int> by_layer(const ParameterSet& parameters, int shards) {
  std::unordered_map<std::string, int> layers;
  std::vector<int> out;
  for (const auto& p : parameters)
    out.push_back(layers.try_emplace(layer_of(p.name), static_cast<int>(layers.size())).first->second % shards);
  return out;
}

std::vector<int> by_size(const ParameterSet& parameters, int shards) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return parameters[a].value.numel() > parameters[b].value.numel(); });
  std::vector<int64_t> elements(static_cast<size_t>(shards));
  std::vector<int> out(parameters.size());
  for (const auto i : order) {
    const auto smallest = std::min_element(elements.begin(), elements.end());
    *smallest += parameters[i].value.numel();
    out[i] = static_cast<int>(smallest - elements.begin());
  }
  return out;
}

}  // namespace

std::vector<int> shards_of(const ParameterSet& parameters, int shards, const std::string& shard_by) {
  constexpr int kMost = 1 << 20;
  check(shards >= 1 && shards <= kMost, ErrorKind::Usage, kShardingWhere, shards, " shards; allowed: 1 to ", kMost);
  check(shard_by == "layer" || shard_by == "parameter_size", ErrorKind::Usage, kShardingWhere, "shard_by is '", shard_by,
        "'; allowed: layer, parameter_size");
  return shard_by == "layer" ? by_layer(parameters, shards) : by_size(parameters, shards);
}

GradientSharding::GradientSharding(ParameterSet parameters, int num_shards, const std::string& shard_by,
                                   std::shared_ptr<ProcessGroup> group)
    : parameters_(std::move(parameters)),
      num_shards_(num_shards),
      shards_(shards_of(parameters_, num_shards, shard_by)),
      group_(std::move(group)) {}

int GradientSharding::get_shard_for_param(const std::string& name) const {
  auto first = name;
  for (const auto& [alias, of] : parameters_.aliases())
    if (alias == name) first = of;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].name == first) return shards_[i];
  throw Error(ErrorKind::Usage, kShardingWhere, "there is no parameter '" + name + "'",
              "names are those of named_parameters(), such as " + (parameters_.empty() ? "layer.weight" : parameters_[0].name));
}

ParameterSet GradientSharding::own() const {
  return parameters_.filter([&](const Parameter& p) { return is_own(p.name); });
}

bool GradientSharding::is_own(const at::Tensor& parameter) const {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].value.is_same(parameter)) return owner(shards_[i]) == rank();
  throw Error(ErrorKind::Usage, kShardingWhere, "the optimizer has a parameter that is not among those that are sharded",
              "make both of the same model");
}

// Buffer for the parameters of one dtype and device, with an equal part for each rank.
struct GradientSharding::Packed {
  at::TensorOptions options;
  struct Place {
    size_t parameter;
    int owner;
    int64_t begin;  // offset in the part of its owner
  };
  std::vector<Place> places;
  int64_t part = 0;
};

std::vector<GradientSharding::Packed> GradientSharding::packed() const {
  std::vector<Packed> out;
  std::vector<std::vector<int64_t>> ends;  // ends of the parts in each buffer
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& value = parameters_[i].value;
    const auto options = value.options().requires_grad(false);
    auto at = std::find_if(out.begin(), out.end(),
                           [&](const Packed& p) { return p.options.device() == options.device() && p.options.dtype() == options.dtype(); });
    if (at == out.end()) {
      at = out.insert(out.end(), Packed{.options = options, .places = {}});
      ends.emplace_back(static_cast<size_t>(ranks()));
    }
    const int of = owner(shards_[i]);
    auto& end = ends[static_cast<size_t>(at - out.begin())][static_cast<size_t>(of)];
    at->places.push_back({.parameter = i, .owner = of, .begin = end});
    end += value.numel();
    at->part = std::max(at->part, end);
  }
  return out;
}

void GradientSharding::shard_gradients() const {
  if (ranks() == 1) return;
  const at::NoGradGuard no_grad;
  std::string has(parameters_.size(), '0');
  for (size_t i = 0; i < has.size(); ++i)
    if (parameters_[i].value.grad().defined()) has[i] = '1';
  const auto of_ranks = group_->gather("shard_gradients", has);
  for (const auto& other : of_ranks)
    check(other.size() == has.size(), ErrorKind::Peer, kShardingWhere, "ranks have ", other.size(), " and ", has.size(), " parameters");
  for (const auto& buffer : packed()) {
    const bool on_device = group_->transport(buffer.options.device()) != ProcessGroup::kHostTransport;
    const auto options = on_device ? buffer.options : buffer.options.device(at::kCPU);
    const auto own = at::zeros({ranks() * buffer.part}, options), all = at::empty_like(own);
    for (const auto& place : buffer.places) {
      const auto& p = parameters_[place.parameter].value;
      if (p.grad().defined()) own.narrow(0, place.owner * buffer.part + place.begin, p.numel()).copy_(p.grad().reshape({-1}));
      p.mutable_grad().reset();
    }
    group_->all_to_all(all, own)->wait();
    auto sum = all.narrow(0, 0, buffer.part).clone();
    for (int r = 1; r < ranks(); ++r) sum.add_(all.narrow(0, r * buffer.part, buffer.part));
    for (const auto& place : buffer.places) {
      const auto& p = parameters_[place.parameter].value;
      const bool anywhere = std::any_of(of_ranks.begin(), of_ranks.end(), [&](const auto& r) { return r[place.parameter] == '1'; });
      if (place.owner == rank() && anywhere)
        p.mutable_grad() = at::empty_like(p.detach()).copy_(sum.narrow(0, place.begin, p.numel()).view(p.sizes()));
    }
  }
}

void GradientSharding::gather_parameters() const {
  if (ranks() == 1) return;
  const at::NoGradGuard no_grad;
  group_->barrier("gather_parameters");
  for (const auto& buffer : packed()) {
    const bool on_device = group_->transport(buffer.options.device()) != ProcessGroup::kHostTransport;
    const auto options = on_device ? buffer.options : buffer.options.device(at::kCPU);
    const auto own = at::zeros({buffer.part}, options), all = at::empty({ranks() * buffer.part}, options);
    for (const auto& place : buffer.places) {
      const auto& p = parameters_[place.parameter].value;
      if (place.owner == rank()) own.narrow(0, place.begin, p.numel()).copy_(p.detach().reshape({-1}));
    }
    group_->all_gather(all, own)->wait();
    for (const auto& place : buffer.places) {
      const auto& p = parameters_[place.parameter].value;
      if (place.owner != rank()) p.detach().copy_(all.narrow(0, place.owner * buffer.part + place.begin, p.numel()).view(p.sizes()));
    }
  }
}

}  // namespace npu_train

#include "dist/parameter_units.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <utility>

#include "dist/operator_sequence.hpp"
#include "dist/parameter_slices.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kUnits = "parameter units";
constexpr size_t kKeptPieces = 2;  // one unit computes while the next one is gathered

// Disables autocast's cache of low-precision weights, which keeps the memory of all units until the forward pass ends.
class NoAutocastCache {
 public:
  NoAutocastCache() : before_(at::autocast::is_autocast_cache_enabled()) { at::autocast::set_autocast_cache_enabled(false); }
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  bool before_;
};

c10::DataPtr nothing(const c10::Device& device) { return {nullptr, device}; }

}  // namespace

std::vector<size_t> unit_of_each(const ParameterSet& parameters, const std::vector<ParameterUnit>& units) {
  std::map<std::string, size_t> by_name;
  for (size_t u = 0; u < units.size(); ++u)
    for (const auto& name : units[u].parameters) {
      const auto [at, is_new] = by_name.emplace(name, u + 1);
      check(is_new, ErrorKind::Usage, "GradientReducer", name, " is in two units, ", units[at->second - 1].name, " and ", units[u].name,
            "; hint: parameters that several units use belong to none");
    }
  std::vector<size_t> out;
  for (const auto& p : parameters) {
    const auto found = by_name.find(p.name);
    out.push_back(found == by_name.end() ? 0 : found->second);
  }
  return out;
}

ParameterUnits::ParameterUnits(const ParameterSet& parameters, const std::vector<size_t>& unit_of, std::vector<std::string> names,
                               std::vector<const FlatBucket*> layout, ProcessGroup& group, Options options)
    : parameters_(parameters), group_(group), options_(options) {
  const at::NoGradGuard no_grad;
  units_.push_back({.name = "the root"});
  for (auto& name : names) units_.push_back({.name = std::move(name)});
  const auto unit_of_bucket = [&](const FlatBucket& bucket) { return unit_of.at(bucket.pieces.front().parameter); };
  for (const auto* bucket : layout)
    if (unit_of_bucket(*bucket) != 0)
      piece_bytes_ = std::max(piece_bytes_,
                              static_cast<size_t>(bucket->numel) * in_model(parameters_[bucket->pieces.front().parameter]).element_size());
  for (const auto* bucket : layout) {
    auto& unit = units_.at(unit_of_bucket(*bucket));
    unit.storages.push_back(storages_.size());
    const auto& first = in_model(parameters_[bucket->pieces.front().parameter]);
    Storage storage{.layout = bucket,
                    .flat = at::empty({0}, bucket->options.dtype(first.scalar_type())),
                    .shard = at::zeros({bucket->numel / group_.size()}, bucket->options),
                    .staged = {},
                    .gather = {}};
    fill(storage, static_cast<size_t>(&unit - units_.data()));  // pieces are reused: new memory for each would leave gaps in the heap
    storage.flat.unsafeGetTensorImpl()->set_sizes_contiguous({bucket->numel});
    storage.flat.zero_();
    for (const auto& piece : bucket->pieces) {
      const auto& p = parameters_[piece.parameter];
      const auto range = bucket->range_of_rank(piece, group_.rank(), group_.size());
      storage.shard.narrow(0, bucket->offset_in_part(piece, group_.rank(), group_.size()), range.numel)
          .copy_(p.slice(range.begin, range.numel).value);
      const auto view = FlatBucket::view(storage.flat, piece, in_model(p));
      view.copy_(in_model(p));
      storage.hidden.push_back(without_memory(view, view.options(),
                                              "the parameter " + p.name + " is in shards, and has memory only while its unit, " +
                                                  unit.name +
                                                  ", runs in a pass: begin_forward() begins one, and GradientReducer::run() runs a unit; "
                                                  "GradientReducer::gather() gives all of it, and unshard_parameters() of all parameters"));
      // Sets the size of the storage, so that a layer's forward can make views of the tensor, and fails only at the first access, with the
      // error above.
      storage.hidden.back().storage().unsafeGetStorageImpl()->set_nbytes(view.nbytes());
      in_model(p).set_data(storage.hidden.back());
      if (p.computed.defined()) p.value.set_data(divided_master(p, bucket->options));
    }
    storages_.push_back(std::move(storage));
    release(static_cast<size_t>(&unit - units_.data()));
    unit.place = Place::Here;  // another bucket of the unit may follow
  }
  for (auto& unit : units_) unit.place = Place::Away;
  free_.clear();
}

Parameter ParameterUnits::own(size_t bucket, size_t piece) const {
  const auto& storage = storages_[bucket];
  const auto& of = storage.layout->pieces[piece];
  const auto range = storage.layout->range_of_rank(of, group_.rank(), group_.size());
  const auto offset = storage.layout->offset_in_part(of, group_.rank(), group_.size());
  const auto& parameter = parameters_[of.parameter];
  const Parameter shard{.name = parameter.name, .value = storage.shard, .group = parameter.group};
  auto out = shard.slice(offset, range.numel);
  out.value.set_requires_grad(parameter.value.requires_grad());
  out.sliced_from = parameter.value;
  out.begin = range.begin;
  return out;
}

void ParameterUnits::begin_pass(bool backward) {
  end_pass();
  bring(0);
  direction_ = Direction::Forward;
  backward_follows_ = backward;
  sent_ = 0;
}

// The last unit stays complete between the passes, so the backward pass does not gather it.
size_t ParameterUnits::in_order() const { return direction_ == Direction::Backward && blocks() > 0 ? blocks() - 1 : blocks(); }

size_t ParameterUnits::unit_at(size_t position) const { return direction_ == Direction::Backward ? blocks() - 1 - position : position + 1; }

void ParameterUnits::send(size_t unit) {
  for (const auto i : units_[unit].storages) {
    auto& storage = storages_[i];
    fill(storage, unit);
    const bool stage = !options_.between_devices && !storage.flat.is_cpu();
    if (stage) storage.staged = at::empty({storage.layout->numel}, storage.flat.options().device(at::kCPU));
    const auto& to = stage ? storage.staged : storage.flat;
    storage.gather = group_.all_gather(to, storage.shard.to(to.options()));  // masters are rounded here
    const auto of_rank = static_cast<int64_t>(storage.flat.nbytes()) / group_.size();
    traffic_.bytes += of_rank * (group_.size() - 1);
  }
  units_[unit].place = Place::Coming;
}

// Sends the units up to `position` in the order of this pass, or up to the last unit of the pass.
void ParameterUnits::send_up_to(size_t position) {
  for (; sent_ <= position && sent_ < in_order(); ++sent_) send(unit_at(sent_));
}

void ParameterUnits::bring(size_t unit) {
  if (units_[unit].place == Place::Here) return;
  if (units_[unit].place == Place::Away) send(unit);
  const double begin = SteadyClock().now();
  for (const auto i : units_[unit].storages) {
    auto& storage = storages_[i];
    storage.gather->wait();
    storage.gather.reset();
    if (storage.staged.defined()) storage.flat.copy_(std::exchange(storage.staged, at::Tensor()));
    show(storage);
  }
  units_[unit].place = Place::Here;
  traffic_.waited += SteadyClock().now() - begin;
}

size_t ParameterUnits::bytes_of(const Storage& storage) { return static_cast<size_t>(storage.layout->numel) * storage.flat.element_size(); }

// Whether the storage uses a piece of the shared memory. A much smaller storage (fp32 norms of a unit in low precision) has its own memory.
bool ParameterUnits::is_shared(const Storage& storage, size_t unit) const { return unit != 0 && 2 * bytes_of(storage) > piece_bytes_; }

// Gives flat storage its memory: a free piece, or a new one.
void ParameterUnits::fill(Storage& storage, size_t unit) {
  auto* const impl = storage.flat.storage().unsafeGetStorageImpl();
  const auto bytes = bytes_of(storage);
  const bool shared = is_shared(storage, unit);
  if (shared && !free_.empty()) {
    impl->set_data_ptr_noswap(std::move(free_.back()));
    free_.pop_back();
  } else {
    const c10::DeviceGuard guard(storage.flat.device());  // the allocator uses the current device
    auto* const allocator = c10::GetAllocator(storage.flat.device().type());
    impl->set_data_ptr_noswap(allocator->allocate(shared ? piece_bytes_ : bytes));
  }
  impl->set_nbytes(bytes);
}

// Makes the model's parameters views of flat storage, which has memory now. Tensors saved by autograd share the storage at all times.
void ParameterUnits::show(const Storage& storage) {
  for (const auto& piece : storage.layout->pieces) {
    const auto& parameter = in_model(parameters_[piece.parameter]);
    parameter.set_data(FlatBucket::view(storage.flat, piece, parameter));
  }
}

void ParameterUnits::hide(const Storage& storage) {
  for (size_t i = 0; i < storage.layout->pieces.size(); ++i)
    in_model(parameters_[storage.layout->pieces[i].parameter]).set_data(storage.hidden[i]);
}

void ParameterUnits::release(size_t unit) {
  if (units_[unit].place == Place::Coming) bring(unit);
  if (units_[unit].place == Place::Away) return;
  for (const auto i : units_[unit].storages) {
    auto* const impl = storages_[i].flat.storage().unsafeGetStorageImpl();
    if (impl->data() == nullptr) continue;
    hide(storages_[i]);
    auto memory = impl->set_data_ptr(nothing(storages_[i].flat.device()));
    impl->set_nbytes(0);
    if (is_shared(storages_[i], unit) && free_.size() < kKeptPieces) free_.push_back(std::move(memory));
  }
  units_[unit].place = Place::Away;
}

// Gathers one unit after the other, so that a rank without samples needs the memory of only one.
void ParameterUnits::finish_direction() {
  while (sent_ < in_order()) {
    const auto unit = unit_at(sent_);
    send_up_to(sent_);
    bring(unit);
    if (!(backward_follows_ && direction_ == Direction::Forward && unit == blocks())) release(unit);
  }
}

void ParameterUnits::turn_to_backward() {
  if (direction_ != Direction::Forward) return;
  finish_direction();
  for (size_t unit = 1; unit < blocks(); ++unit) release(unit);  // units that were sent ahead, but that the forward pass did not run
  direction_ = Direction::Backward;
  sent_ = 0;
}

void ParameterUnits::end_pass() {
  if (direction_ == Direction::None) return;
  const at::NoGradGuard no_grad;
  const OperatorSequence::Unseen unseen;
  const std::lock_guard lock(mutex_);
  if (backward_follows_) turn_to_backward();
  finish_direction();
  for (size_t unit = 1; unit < units_.size(); ++unit) release(unit);
  direction_ = Direction::None;
}

void ParameterUnits::idle_pass(bool backward) {
  begin_pass(backward);
  end_pass();
}

void ParameterUnits::end() {
  end_pass();
  release(0);
}

void ParameterUnits::unshard_all() {
  end_pass();
  const at::NoGradGuard no_grad;
  for (size_t unit = 0; unit < units_.size(); ++unit) bring(unit);
}

void ParameterUnits::unshard_for_backward(size_t unit) {
  turn_to_backward();
  if (unit < blocks()) send_up_to(blocks() - 1 - unit);
  check(units_[unit].place != Place::Away, ErrorKind::Usage, kUnits, units_[unit].name,
        " is needed again after its backward pass; hint: units run once in a forward pass, one after the other and in their order; "
        "parameters "
        "that several use belong to none");
  bring(unit);
}

// Prepares the backward pass of a unit; the backward passes of the units after it have ended.
void ParameterUnits::enter_backward(size_t unit) {
  const at::NoGradGuard no_grad;
  const OperatorSequence::Unseen unseen;
  const std::lock_guard lock(mutex_);
  unshard_for_backward(unit);
  for (size_t behind = unit + 1; behind < units_.size(); ++behind) release(behind);
  if (options_.ahead) send_up_to(sent_);
}

at::Tensor ParameterUnits::run(size_t index, const UnitForward& forward, const at::Tensor& x) {
  const auto unit = index + 1;
  const NoAutocastCache no_cache;
  check(unit < units_.size(), ErrorKind::Usage, kUnits, "there is no unit ", index, "; there are ", blocks());
  check(direction_ != Direction::None, ErrorKind::Usage, kUnits, units_[unit].name,
        " runs outside of a pass, where its parameters are in shards; hint: every rank calls begin_forward() before its forward pass");
  const bool again = direction_ == Direction::Backward;  // recomputation by gradient checkpointing
  {
    const at::NoGradGuard no_grad;
    const OperatorSequence::Unseen unseen;
    const std::lock_guard lock(mutex_);
    if (again) {
      unshard_for_backward(unit);
    } else {
      send_up_to(index);
      check(units_[unit].place != Place::Away, ErrorKind::Usage, kUnits, units_[unit].name,
            " runs twice in a forward pass; hint: parameters that are used twice belong to no unit");
      bring(unit);
      if (options_.ahead) send_up_to(index + 1);
    }
  }
  auto y = forward(x);
  if (again) return y;
  if (y.requires_grad()) y.register_hook([this, unit](const at::Tensor& /*gradient*/) { enter_backward(unit); });
  if (!(backward_follows_ && unit == blocks())) {
    const std::lock_guard lock(mutex_);
    release(unit);
  }
  return y;
}

}  // namespace npu_train::detail

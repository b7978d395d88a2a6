#include "npu_train/dist/gradient_reducer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "dist/bucket.hpp"
#include "dist/bucket_queue.hpp"
#include "dist/compression_state.hpp"
#include "dist/equal_parameters.hpp"
#include "dist/gradient_hook.hpp"
#include "dist/operator_sequence.hpp"
#include "dist/parameter_slices.hpp"
#include "dist/parameter_units.hpp"
#include "dist/reduction_rules.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/dist/rings.hpp"

namespace npu_train {

namespace {

using detail::Bucket;

std::shared_ptr<ProcessGroup> checked(std::shared_ptr<ProcessGroup> group) {
  check(group != nullptr, ErrorKind::Usage, "GradientReducer", "no process group is given");
  return group;
}

c10::Device place_of(const ParameterSet& parameters, Sharding sharding, std::optional<c10::Device> moved_to) {
  if (moved_to && sharding == Sharding::Parameters) return *moved_to;
  return parameters.empty() ? c10::Device(c10::kCPU) : parameters[0].value.device();
}

// Returns the options that take effect, equal on all ranks. Called before any call in which ranks with different options would hang.
DistOptions agreed(ProcessGroup& group, const DistOptions& given, const c10::Device& device, Sharding sharding) {
  check_limits(given, "dist");
  const auto on = device_of(device);
  const bool on_machines = dynamic_cast<const detail::SimulatedRanks*>(&group) == nullptr;
  check_collectives(on_machines ? group.local_size() : 1, on, given);
  if (on_machines && given.backend != "gloo" && backend_of(on).capabilities(on).ranks_by_powers_of_two)
    detail::check_rings(group.size(), group.local_size(), given.shard_size_of(group, sharding), given.group_size_of(group), on.str());
  const auto options = given.resolved(group.transport(device), sharding);
  detail::check_equal_options(group, options, sharding);
  return options;
}

}  // namespace

class GradientReducer::Impl {
 public:
  Impl(const ParameterSet& parameters, std::shared_ptr<ProcessGroup> group, const DistOptions& options, Sharding sharding,
       const std::vector<ParameterUnit>& units, c10::Device device, bool equal_values);
  ~Impl();

  void begin_window(int64_t micro_batches);
  void begin_forward(bool backward);
  at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x);
  void idle_forward();
  void end_forward();
  void unshard_parameters() const { slices_->unshard_parameters(); }
  void begin_backward(bool last);
  void end_micro_batch();
  std::vector<double> finish(const std::vector<double>& own);
  const ReductionTimes& times() const { return times_; }
  void settle(bool taken) { errors_->settle(taken); }
  void set_gradient_scale(double scale);
  bool has_error_feedback() const { return has_error_feedback_; }
  CompressionState compression_state() const { return errors_->state(); }
  void load_compression_state(const State& saved) { errors_->load(saved); }
  const ParameterSet& own() const { return slices_->own(); }
  int shard_size() const { return groups_.shards->size(); }
  void add_over_ranks(at::Tensor& own) const;
  void gather_parameters();
  void gather(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole) const { slices_->gather(slices, whole); }

 private:
  void open_window();
  void keep_sums_once();
  detail::ParameterUnits& units(const char* call) const;
  void note_times(double backward);
  void on_gradient(size_t bucket, size_t piece);
  void take(size_t bucket, size_t piece);
  void send_round();
  void fold_round();
  void end_round();
  void idle_pass();
  void end_rounds();
  std::vector<double> agree(const std::vector<double>& own, std::vector<bool>& present);
  void set_sum(size_t parameter, const at::Tensor& sum);
  bool last_round() const { return window_mode_ || round_ + 1 >= rounds_; }
  detail::BucketQueue::Round round() const { return {.unit = errors_->unit(), .last = last_round()}; }

  ParameterSet parameters_;
  std::shared_ptr<ProcessGroup> group_;
  DistOptions options_;  // resolved
  detail::ShardGroups groups_;
  detail::RankGroups rank_groups_;
  Sharding sharding_;
  bool ordered_, window_mode_, overlap_, between_devices_;
  bool has_error_feedback_ = false;
  std::vector<Bucket> buckets_;
  detail::BucketQueue queue_;
  std::unique_ptr<detail::ParameterUnits> units_;  // exists only with Sharding::Parameters
  std::unique_ptr<detail::ParameterSlices> slices_;
  std::unique_ptr<detail::BucketErrors> errors_;  // error feedback of compression
  int64_t passes_ = 0, passes_of_all_ = 1;        // forward passes of this window: on this rank so far, and the maximum over ranks
  bool in_pass_ = false;                          // a forward pass has begun, and its backward pass is to come
  std::vector<at::Tensor> given_;                 // gradients that finish() has set: sums over all ranks
  std::vector<bool> present_;                     // parameters with a gradient on this rank, in this window
  std::mutex mutex_;                              // hooks run in autograd's threads
  bool armed_ = false;                            // hooks deliver gradients to buckets
  bool open_ = false;                             // a round is in progress
  bool finished_ = true;                          // no round of a new window has begun
  int64_t round_ = 0, rounds_ = 1;
  double begin_ = 0;  // start of the backward pass, by SteadyClock
  ReductionTimes times_;
};

GradientReducer::Impl::Impl(const ParameterSet& parameters, std::shared_ptr<ProcessGroup> group, const DistOptions& given,
                            Sharding sharding, const std::vector<ParameterUnit>& units, c10::Device device, bool equal_values)
    : parameters_(parameters),
      group_(checked(std::move(group))),
      options_(agreed(*group_, given, device, sharding)),
      groups_(group_, options_.shard_size_of(*group_, sharding)),
      rank_groups_(*group_, options_.group_size_of(*group_)),
      sharding_(sharding),
      given_(parameters.size()),
      present_(parameters.size()) {
  const auto& options = options_;
  ordered_ = options.adds_in_order();
  window_mode_ = options.reduce == "window";
  between_devices_ = group_->transport(device) != ProcessGroup::kHostTransport;
  if (between_devices_ && groups_.replicas != nullptr)
    for (const auto& part : {groups_.shards, groups_.replicas}) part->transport(device);
  if (between_devices_)
    for (const auto& part : {rank_groups_.members, rank_groups_.leaders})
      if (part != nullptr && part->size() > 1) part->transport(device);
  // With sharded parameters, gradients are not sent during the backward pass in two cases. Between devices, exchanges and gathers form one
  // sequence, so gradients are sent after all gathers of parameters. With dist.debug, an exchange waits for ranks that are still gathering
  // parameters.
  overlap_ = options.overlap && !(sharding_ == Sharding::Parameters && (between_devices_ || options.debug));
  // With groups of ranks, only messages between groups are compressed.
  const auto compression = options.has_groups() && rank_groups_.count == 1 ? Compression() : options.compressed();
  const Bucket::Travel travel{.dtype = detail::travel_dtype(options),
                              .between_devices = between_devices_,
                              .compression = compression,
                              .compresses = options.compression_start == 0};
  const bool scatters = sharding_ != Sharding::None && between_devices_;
  const detail::ReductionRules rules{options, compression, sharding_, groups_, rank_groups_, scatters};
  has_error_feedback_ = rules.has_error_feedback();
  rules.check_options();
  // Steps are not taken early if exchanges and gathers form one sequence, or if each collective waits for all ranks (dist.debug). With
  // shards there are no gathers, except of compressed gradients or between ranks with the same shard.
  const bool one_sequence = between_devices_ && (sharding_ == Sharding::None || has_error_feedback_ || rank_groups_.members != nullptr ||
                                                 groups_.replicas != nullptr);
  queue_.set({.ordered = ordered_, .early = !options.debug && !one_sequence, .in_flight = options.in_flight});
  for (const auto& p : parameters_)
    check(p.value.requires_grad(), ErrorKind::Usage, "GradientReducer", p.name,
          " requires no gradient; allowed: the parameters that are trained");
  detail::check_equal_parameters(parameters_, *group_, /*values=*/!equal_values);
  const auto unit_of = detail::unit_of_each(parameters_, units);
  auto layout = rules.layout(parameters_, unit_of);
  if (sharding_ == Sharding::Parameters)
    for (auto& bucket : layout)
      if (bucket.options.device().is_cpu()) bucket.options = bucket.options.device(device);
  buckets_.reserve(layout.size());
  for (auto& bucket : layout) buckets_.emplace_back(std::move(bucket), parameters_, groups_, rank_groups_, travel, sharding_);
  if (sharding_ == Sharding::Parameters) {
    std::vector<std::string> names;
    for (const auto& unit : units) names.push_back(unit.name);
    std::vector<const detail::FlatBucket*> storages;
    for (const auto& b : buckets_) storages.push_back(&b.layout());
    units_ = std::make_unique<detail::ParameterUnits>(
        parameters_, unit_of, std::move(names), std::move(storages), *groups_.shards,
        detail::ParameterUnits::Options{.between_devices = between_devices_, .ahead = options.overlap});
  }
  slices_ = std::make_unique<detail::ParameterSlices>(parameters_, buckets_, units_.get(), groups_, sharding_, between_devices_);
  errors_ = std::make_unique<detail::BucketErrors>(buckets_, parameters_, options.compression_start);
  for (size_t b = 0; b < buckets_.size(); ++b)
    for (size_t i = 0; i < buckets_[b].layout().pieces.size(); ++i) {
      const auto& p = parameters_[buckets_[b].layout().pieces[i].parameter];
      detail::hook_gradient(detail::in_model(p), [this, b, i] { on_gradient(b, i); });
    }
}

GradientReducer::Impl::~Impl() {
  for (const auto& p : parameters_) detail::unhook_gradient(detail::in_model(p));
}

void GradientReducer::Impl::begin_window(int64_t micro_batches) {
  check(micro_batches >= 0, ErrorKind::Usage, "GradientReducer", micro_batches, " micro-batches; allowed: 0 or more");
  armed_ = open_ = false;
  begin_ = 0;
  round_ = 0;
  rounds_ = 1;
  present_.assign(present_.size(), false);
  for (const auto& p : parameters_)
    if (p.computed.defined()) p.value.mutable_grad().reset();  // drops gradients of an abandoned window
  passes_ = 0;
  passes_of_all_ = 1;
  finished_ = true;
  if (units_ != nullptr) units_->take_traffic();  // drops the traffic of passes between windows
  open_window();
  if (window_mode_ && units_ == nullptr) return;
  for (const auto& of_rank : group_->gather("begin_window", std::vector<double>{static_cast<double>(micro_batches)}))
    passes_of_all_ = std::max(passes_of_all_, static_cast<int64_t>(of_rank[0]));
  if (!window_mode_) rounds_ = passes_of_all_;
}

detail::ParameterUnits& GradientReducer::Impl::units(const char* call) const {
  check(units_ != nullptr, ErrorKind::Usage, "GradientReducer", call, "() is for Sharding::Parameters");
  return *units_;
}

void GradientReducer::Impl::begin_forward(bool backward) {
  auto& units = this->units("begin_forward");
  if (backward) {
    const detail::OperatorSequence::Unseen unseen;
    open_window();
    units.end_pass();
    if (in_pass_ && !window_mode_) begin_backward(false);  // the last pass had no backward: its round has no gradients
    if (open_) send_round();                               // ranks with fewer passes wait for the round before they take part in this pass
    in_pass_ = true;
    ++passes_;
  }
  units.begin_pass(backward);
}

at::Tensor GradientReducer::Impl::run(size_t unit, const UnitForward& forward, const at::Tensor& x) {
  return units("run").run(unit, forward, x);
}

void GradientReducer::Impl::idle_forward() { units("idle_forward").idle_pass(/*backward=*/false); }

void GradientReducer::Impl::end_forward() { units("end_forward").end(); }

void GradientReducer::Impl::open_window() {
  if (!std::exchange(finished_, false)) return;
  settle(true);
  keep_sums_once();
  for (auto& b : buckets_) b.begin_window();
}

// If the sums of the last window were not zeroed, autograd adds to them. Every rank has the same sums, and the next reduction adds over
// ranks, so only rank 0 keeps them.
void GradientReducer::Impl::keep_sums_once() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto given = std::exchange(given_[i], at::Tensor());
    const auto& now = parameters_[i].value.grad();
    if (group_->rank() != 0 && given.defined() && now.defined() && now.is_same(given)) now.zero_();
  }
}

void GradientReducer::Impl::begin_backward(bool last) {
  const detail::OperatorSequence::Unseen unseen;
  open_window();
  if (open_) end_round();
  in_pass_ = false;
  armed_ = last || !window_mode_;
  open_ = armed_;
  begin_ = SteadyClock().now();
}

// Leaves the last round to finish().
void GradientReducer::Impl::end_micro_batch() {
  if (last_round()) return;
  open_window();
  end_round();
}

void GradientReducer::Impl::on_gradient(size_t bucket, size_t piece) {
  const at::NoGradGuard no_grad;
  const detail::OperatorSequence::Unseen unseen;
  if (!armed_) return detail::add_to_master(parameters_[buckets_[bucket].layout().pieces[piece].parameter]);
  const std::lock_guard lock(mutex_);
  check(!buckets_[bucket].delivered(piece), ErrorKind::Usage, "GradientReducer", "the gradient of ",
        parameters_[buckets_[bucket].layout().pieces[piece].parameter].name,
        " was accumulated twice in one backward pass; hint: npu_train::checkpoint recomputes without a second backward pass");
  take(bucket, piece);
  if (overlap_) queue_.send_complete(buckets_, round());
}

void GradientReducer::Impl::take(size_t bucket, size_t piece) {
  buckets_[bucket].deliver(piece);
  present_[buckets_[bucket].layout().pieces[piece].parameter] = true;
}

// Delivers the pieces that the hooks did not deliver: gradients of earlier micro-batches, or no gradient. Then sends all buckets.
void GradientReducer::Impl::send_round() {
  const at::NoGradGuard no_grad;
  armed_ = false;
  for (size_t b = queue_.sent(); b < buckets_.size(); ++b) {
    const auto& pieces = buckets_[b].layout().pieces;
    for (size_t i = 0; i < pieces.size(); ++i)
      if (const auto& p = parameters_[pieces[i].parameter];
          !buckets_[b].delivered(i) && (p.value.grad().defined() || detail::in_model(p).grad().defined()))
        take(b, i);
    buckets_[b].fill_missing();
    queue_.send_until(buckets_, b, round());
  }
}

void GradientReducer::Impl::fold_round() {
  const at::NoGradGuard no_grad;
  open_ = false;
  queue_.fold(buckets_, round());
  ++round_;
}

void GradientReducer::Impl::end_round() {
  send_round();
  fold_round();
}

// Takes part in a pass of another rank.
void GradientReducer::Impl::idle_pass() {
  units_->idle_pass(/*backward=*/true);
  ++passes_;
}

// Ends all rounds, including those of passes that only other ranks have. Another rank waits for the gradients of a round before its next
// backward pass and, with units, for this rank's part in its next forward pass. So this rank sends its gradients before it takes part in
// that forward pass, and waits for the gradients of other ranks after that pass.
void GradientReducer::Impl::end_rounds() {
  const auto others = [this] { return units_ != nullptr && passes_ < passes_of_all_; };
  if (passes_ == 0 && others()) idle_pass();
  do {
    if (units_ != nullptr) units_->end_pass();
    send_round();
    do
      if (others()) idle_pass();
    while (last_round() && others());
    fold_round();
  } while (round_ < rounds_);
  if (units_ != nullptr) units_->end();
}

// Returns the sums of `own`; sets in `present` which parameters have a gradient on any rank.
std::vector<double> GradientReducer::Impl::agree(const std::vector<double>& own, std::vector<bool>& present) {
  auto numbers = own;
  constexpr size_t kBits = 32;  // a double holds them exactly
  for (size_t i = 0; i < present.size(); i += kBits) {
    uint64_t bits = 0;
    for (size_t k = i; k < std::min(present.size(), i + kBits); ++k) bits |= uint64_t{present[k]} << (k - i);
    numbers.push_back(static_cast<double>(bits));
  }
  std::vector<double> sums(own.size());
  for (const auto& of_rank : group_->gather("finish", numbers)) {
    for (size_t i = 0; i < own.size(); ++i) sums[i] += of_rank[i];
    for (size_t k = 0; k < present.size(); ++k)
      if (static_cast<uint64_t>(of_rank[own.size() + k / kBits]) >> (k % kBits) & 1) present[k] = true;
  }
  return sums;
}

// Sets the gradient of a parameter to `sum`. If the gradient of a slice was not zeroed, adds to it, as autograd does for a parameter.
void GradientReducer::Impl::set_sum(size_t parameter, const at::Tensor& sum) {
  auto& gradient = slices_->own()[parameter].value.mutable_grad();
  if (sharding_ != Sharding::None && gradient.defined())
    gradient = sum.defined() ? at::add(sum, gradient) : gradient;
  else
    gradient = sum;
  if (sharding_ == Sharding::None) given_[parameter] = gradient;
}

std::vector<double> GradientReducer::Impl::finish(const std::vector<double>& own) {
  const at::NoGradGuard no_grad;
  const double backward = SteadyClock().now();
  open_window();
  if (std::exchange(in_pass_, false) && !window_mode_) begin_backward(true);  // the last forward pass had no backward pass
  end_rounds();
  for (auto& b : buckets_) b.turn();
  auto present = present_;
  auto sums = agree(own, present);
  for (auto& b : buckets_) {
    b.wait();
    const auto& pieces = b.layout().pieces;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const bool is_present = present[pieces[i].parameter];
      set_sum(pieces[i].parameter, is_present ? b.sum(i) : at::Tensor());
      if (!is_present && b.compressor() != nullptr) b.compressor()->keep(pieces[i]);
    }
  }
  finished_ = true;
  errors_->propose();
  round_ = 0;
  passes_ = 0;
  present_.assign(present_.size(), false);
  note_times(backward);
  return sums;
}

void GradientReducer::Impl::set_gradient_scale(double scale) {
  check(std::isfinite(scale) && scale > 0, ErrorKind::Usage, "GradientReducer", "a scale of ", scale, "; allowed: positive numbers");
  settle(true);  // the errors of the last window are in the old scale
  errors_->set_scale(scale);
}

void GradientReducer::Impl::add_over_ranks(at::Tensor& own) const {
  const auto host = own.to(at::kCPU).contiguous();
  groups_.shards->all_reduce(host)->wait();
  if (!host.is_same(own)) own.copy_(host);
}

void GradientReducer::Impl::gather_parameters() {
  if (sharding_ == Sharding::None || units_ != nullptr) return;
  const double begin = SteadyClock().now();
  times_.parameter_bytes += slices_->gather_parameters();
  times_.parameters = SteadyClock().now() - begin;
}

void GradientReducer::Impl::note_times(double backward) {
  if (begin_ == 0) begin_ = backward;  // there was no backward pass
  times_ = {.backward = backward - begin_, .end = SteadyClock().now() - begin_};
  if (units_ != nullptr) {
    const auto traffic = units_->take_traffic();
    times_.parameters = traffic.waited;
    times_.parameter_bytes = traffic.bytes;
  }
  for (const auto& b : buckets_) {
    auto times = b.times();
    for (auto* span : {&times.exchange, &times.between, &times.gather})
      if (span->end > 0) *span = {span->begin - begin_, span->end - begin_};
    times_.buckets.push_back(times);
  }
}

GradientReducer::GradientReducer(const ParameterSet& parameters, std::shared_ptr<ProcessGroup> group, const DistOptions& options,
                                 Sharding sharding, const std::vector<ParameterUnit>& units, std::optional<c10::Device> device,
                                 bool equal_values) {
  translated("GradientReducer", [&] {
    impl_ = std::make_unique<Impl>(parameters, std::move(group), options, sharding, units, place_of(parameters, sharding, device),
                                   equal_values);
  });
}
GradientReducer::~GradientReducer() = default;
void GradientReducer::begin_window(int64_t micro_batches) {
  translated("GradientReducer", [&] { impl_->begin_window(micro_batches); });
}
void GradientReducer::begin_forward(bool backward) {
  translated("GradientReducer", [&] { impl_->begin_forward(backward); });
}
at::Tensor GradientReducer::run(size_t unit, const UnitForward& forward, const at::Tensor& x) { return impl_->run(unit, forward, x); }
void GradientReducer::idle_forward() {
  translated("GradientReducer", [&] { impl_->idle_forward(); });
}
void GradientReducer::end_forward() {
  translated("GradientReducer", [&] { impl_->end_forward(); });
}
void GradientReducer::unshard_parameters() {
  translated("GradientReducer", [&] { impl_->unshard_parameters(); });
}
void GradientReducer::begin_backward(bool last) {
  translated("GradientReducer", [&] { impl_->begin_backward(last); });
}
void GradientReducer::end_micro_batch() {
  translated("GradientReducer", [&] { impl_->end_micro_batch(); });
}
std::vector<double> GradientReducer::finish(const std::vector<double>& own) {
  return translated("GradientReducer", [&] { return impl_->finish(own); });
}
void GradientReducer::settle(bool taken) { impl_->settle(taken); }
void GradientReducer::set_gradient_scale(double scale) { impl_->set_gradient_scale(scale); }
bool GradientReducer::has_error_feedback() const { return impl_->has_error_feedback(); }
CompressionState GradientReducer::compression_state() const { return impl_->compression_state(); }
void GradientReducer::load_compression_state(const State& saved) {
  translated("GradientReducer", [&] { impl_->load_compression_state(saved); });
}
const ReductionTimes& GradientReducer::times() const { return impl_->times(); }
const ParameterSet& GradientReducer::own() const { return impl_->own(); }
int GradientReducer::shard_size() const { return impl_->shard_size(); }
void GradientReducer::add_over_ranks(at::Tensor& own) const {
  translated("GradientReducer", [&] { impl_->add_over_ranks(own); });
}
void GradientReducer::gather_parameters() {
  translated("GradientReducer", [&] { impl_->gather_parameters(); });
}
void GradientReducer::gather(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole) {
  translated("GradientReducer", [&] { impl_->gather(slices, whole); });
}

}  // namespace npu_train

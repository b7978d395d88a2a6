#include "npu_train/dist/data_parallel.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include "dist/compression_state.hpp"
#include "dist/flat_layout.hpp"
#include "dist/operator_sequence.hpp"
#include "dist/rank_times.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/run_backward.hpp"

namespace npu_train {
namespace {

// Head of the message that agree() gathers from each rank; the sums follow.
struct Agreement {
  float found_inf = 0;
  uint32_t bits = 0;
  double seconds = 0;
};

}  // namespace

DataParallelStrategy::DataParallelStrategy(std::shared_ptr<ProcessGroup> group, const DistOptions& options, const c10::Device& device,
                                           Sharding sharding)
    : group_(std::move(group)),
      ranks_(make_ranks(group_)),
      device_(device),
      sharding_(sharding),
      options_(options.resolved(group_->transport(device), sharding)),
      shard_size_(options_.shard_size_of(*group_, sharding)),
      times_(std::make_unique<detail::RankTimes>()) {}

DataParallelStrategy::~DataParallelStrategy() = default;

GradientReducer& DataParallelStrategy::reducer() const {
  check(reducer_ != nullptr, ErrorKind::Usage, "DataParallelStrategy", "has no parameters yet; hint: call setup() first");
  return *reducer_;
}

ParameterSet DataParallelStrategy::setup(const ParameterSet& trained) {
  const auto errors = error_feedback() != nullptr ? std::make_optional(reducer_->compression_state()) : std::nullopt;
  if (reducer_ != nullptr) reducer_->unshard_parameters();
  reducer_.reset();  // removes its hooks before new ones are set
  const auto device = device_.is_cpu() ? std::nullopt : std::make_optional(device_);
  reducer_ = std::make_unique<GradientReducer>(trained, group_, options_, sharding_, units_, device, /*equal_values=*/sent_);
  if (errors) reducer_->load_compression_state(detail::own_state(*errors));
  trained_ = trained;
  return reducer_->own();
}

void DataParallelStrategy::broadcast(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& tensor : tensors) {
    // Integer tensors, such as counters, go through host memory: they are few, and not every device can send them.
    const bool between_devices = tensor.is_floating_point() && group_->transport(tensor.device()) != ProcessGroup::kHostTransport;
    auto sent = between_devices ? tensor.detach().contiguous() : tensor.detach().to(at::kCPU).contiguous();
    if (between_devices)
      group_->distribute(sent)->wait();
    else
      group_->broadcast(sent);
    if (!sent.is_alias_of(tensor)) tensor.detach().copy_(sent);
  }
  sent_ = true;
}

void DataParallelStrategy::gather_slices(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole) {
  if (!shards()) return Strategy::gather_slices(slices, whole);  // on this rank alone: other ranks need not make the call
  group_->barrier("gather_slices");                              // reports a rank that makes another call
  reducer().gather(slices, whole);
}

void DataParallelStrategy::does(const char* work) { group_->does("step " + std::to_string(steps_ + 1) + " of this process, " + work); }

void DataParallelStrategy::load(const State& saved) {
  if (saved.empty() && ranks_->is_main())
    log_info("the checkpoint has no errors of compressed gradients; with dist.compression=", options_.compression, " they begin at zero");
  reducer().load_compression_state(saved);
}

void DataParallelStrategy::begin_window(int64_t micro_batches) {
  reducer().settle(/*taken=*/false);  // if the last window was abandoned
  taken_ = true;
  reducer().begin_window(micro_batches);
  in_window_ = true;
  does("forward and backward");
  sequence_.reset();  // drops the record of an abandoned window
  if (is_checked() && shards() && !shards_parameters())
    check_weights(steps_);  // before the step, which makes the weights of all ranks equal
  if (is_checked() && !operators_differ_) sequence_ = std::make_unique<detail::OperatorSequence>();
  window_begin_ = SteadyClock().now();
}

// Before setup() all parameters are complete.
at::Tensor DataParallelStrategy::run(size_t unit, const UnitForward& forward, const at::Tensor& x) {
  return reducer_ != nullptr ? reducer_->run(unit, forward, x) : forward(x);
}

bool DataParallelStrategy::begin_forward(bool has_batch) {
  if (!shards_parameters() || reducer_ == nullptr) return has_batch;
  if (in_window_) {  // in a window, no agreement is needed: all ranks know its number of passes
    reducer().begin_forward();
    return has_batch;
  }
  while (ranks_->any(has_batch)) {
    if (has_batch) {
      reducer().begin_forward(/*backward=*/false);
      return true;
    }
    reducer().idle_forward();
  }
  reducer().end_forward();
  return false;
}

void DataParallelStrategy::backward(const at::Tensor& loss, bool last) {
  reducer().begin_backward(last);
  run_backward(loss);
}

WindowWeight DataParallelStrategy::finish_gradients(const WindowWeight& own) {
  computed_ = SteadyClock().now() - window_begin_;
  operators_ = sequence_ ? sequence_->stop() : std::string();
  sequence_.reset();
  own_weight_ = own;
  in_window_ = false;
  does("reduction of gradients");
  const auto total = reducer().finish({own.loss, own.samples, own.micro_batches});
  return {.loss = total[0], .samples = total[1], .micro_batches = total[2]};
}

void DataParallelStrategy::agree(StepAgreement& step) {
  Agreement own{
      .found_inf = step.found_inf.defined() ? step.found_inf.item<float>() : 0, .bits = std::exchange(wanted_, 0), .seconds = computed_};
  std::string message(reinterpret_cast<const char*>(&own), sizeof own);
  // Sums are added in rank order, and sums of squares without rounding. Without shards, squares are not exchanged, because every rank has
  // all of them.
  std::vector<at::Tensor> added;
  if (shards() && step.squares.defined()) added.push_back(step.squares);
  added.push_back(step.sums);
  std::vector<at::Tensor> sums(added.size());
  for (const auto& tensor : added) {
    const auto host = tensor.to(at::kCPU).contiguous();
    message.append(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  }
  std::vector<double> seconds;
  decided_ = 0;
  for (auto& given : group_->gather("agree", message)) {
    check(given.size() == message.size(), ErrorKind::Peer, "agree",
          "ranks have different numbers of metrics; hint: all ranks must run the "
          "same program with the same configuration");
    const bool in_own_group = static_cast<int>(seconds.size()) / shard_size_ == group_->rank() / shard_size_;
    std::memcpy(&own, given.data(), sizeof own);
    decided_ |= own.bits;
    seconds.push_back(own.seconds);
    if (step.found_inf.defined() && own.found_inf != 0) {
      step.found_inf.fill_(1);
      taken_ = false;
    }
    auto* at = given.data() + sizeof own;
    for (size_t i = 0; i < added.size(); ++i) {
      const auto part = at::from_blob(at, added[i].sizes(), added[i].scalar_type()).clone();
      at += part.nbytes();
      const bool is_squares = i + 1 < added.size();
      if (is_squares && !in_own_group) continue;  // other shard groups have the same shards
      sums[i] = sums[i].defined() ? sums[i].add_(part) : part;
    }
  }
  for (size_t i = 0; i < added.size(); ++i) added[i].copy_(sums[i]);
  if (const auto slowest = times_->add(seconds); ranks_->is_main() && !slowest.empty()) log_warning(slowest);
}

void DataParallelStrategy::finish_step() {
  reducer().settle(taken_);
  reducer().gather_parameters();
  if (is_checked()) {
    if (!shards()) check_weights(steps_ + 1);
    if (!operators_differ_) check_operators();
  }
  group_->does("after step " + std::to_string(++steps_) + " of this process");
}

void DataParallelStrategy::check_weights(int64_t steps) {
  std::string own;
  for (const auto& p : trained_) {
    const auto content = digest(shards() ? detail::in_model(p) : p.value);  // masters are sharded, or not rounded yet
    own.append(reinterpret_cast<const char*>(&content), sizeof content);
  }
  const auto all = group_->gather("check_every", own);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const auto differs = std::mismatch(all[0].begin(), all[0].end(), all[r].begin(), all[r].end()).first - all[0].begin();
    throw Error(ErrorKind::CheckFailed, "dist.check_every",
                str_cat("after ", steps, " steps ", trained_[static_cast<size_t>(differs) / sizeof(uint64_t)].name, " of rank ", r,
                        " differs from that of rank 0"),
                "something outside the training changed it on one rank, or the machine of one rank computes differently");
  }
}

// Logs a warning instead of an error, because a model may choose operators by its input.
void DataParallelStrategy::check_operators() {
  const auto all = group_->gather("operators", str_cat(own_weight_.samples, " ", own_weight_.micro_batches, " ", hash64(operators_)));
  const auto samples_of = [&](size_t r) { return all[r].substr(0, all[r].rfind(' ')); };
  for (size_t r = 1; r < all.size() && !operators_differ_; ++r) {
    if (all[r] == all[0] || samples_of(r) != samples_of(0)) continue;
    operators_differ_ = true;
    const auto names = group_->gather("operators", operators_);
    const auto found = detail::first_difference(names[0], names[r]);
    const auto shown = [](const std::string& name) { return name.empty() ? "the end" : name; };
    if (ranks_->is_main())
      log_warning("dist.check_every: in step ", steps_ + 1, " operator ", found.number, " of forward and backward is ", shown(found.b),
                  " on rank ", r, " and ", shown(found.a), " on rank 0; the ranks compute differently");
  }
}

unsigned DataParallelStrategy::decide(unsigned wanted) {
  wanted_ = wanted;
  return std::exchange(decided_, 0);
}

}  // namespace npu_train

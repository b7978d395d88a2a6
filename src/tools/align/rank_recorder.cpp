#include "tools/align/rank_recorder.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/var_mean.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/dist/ranks.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/tools/align/statistics.hpp"
#include "npu_train/train/task.hpp"
#include "tools/align/dump_folder.hpp"
#include "tools/align/dump_places.hpp"

namespace npu_train::detail {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMostSamples = 4096;  // largest number of samples of a micro-batch whose content is recorded

std::string digest_text(const at::Tensor& t) { return t.defined() ? hex64(digest(t)) : std::string(); }

double norm_of(const TensorStatistics& statistics) { return std::abs(statistics.norm.value_or(0)); }

double sum_of(const at::Tensor& t, const TensorStatistics& statistics) {
  return statistics.mean.value_or(0) * static_cast<double>(t.numel());
}

Spread spread_of(const at::Tensor& values) {
  const auto host = values.to(at::kCPU, at::kDouble).contiguous();
  Spread out{.count = host.numel()};
  const auto* v = host.const_data_ptr<double>();
  for (int64_t i = 0; i < out.count; ++i) out.mean += v[i] / static_cast<double>(out.count);
  for (int64_t i = 0; i < out.count && out.count > 1; ++i)
    out.variance += (v[i] - out.mean) * (v[i] - out.mean) / static_cast<double>(out.count - 1);
  return out;
}

// Returns the input of the network: "input", or the first field with one row per sample.
const at::Tensor* input_of(const Batch& batch) {
  if (batch.has("input")) return &batch.input();
  for (const auto& [name, tensor] : batch.fields())
    if (tensor.dim() > 0 && tensor.size(0) == batch.rows()) return &tensor;
  return nullptr;
}

RankBatch note_of(const Batch& given) {
  const auto batch = given.pending.empty() ? given : given.finished();
  RankBatch out;
  out.ids = batch.ids;
  const auto* input = input_of(batch);
  if (input == nullptr || input->dim() == 0 || batch.size == 0) return out;
  const auto samples = input->detach().narrow(0, 0, std::min(batch.size, input->size(0)));
  const auto host = samples.to(at::kCPU);
  for (int64_t i = 0; i < std::min(host.size(0), kMostSamples); ++i) out.contents.push_back(digest_text(host[i]));
  if (host.numel() == 0 || host.is_complex()) return out;
  const std::array<int64_t, 1> of_sample{1};
  const auto [variance, mean] = at::var_mean(host.reshape({host.size(0), -1}).to(at::kFloat), of_sample, /*unbiased=*/false);
  out.means = spread_of(mean);
  out.deviations = spread_of(variance.sqrt());
  return out;
}

// Returns values whose sums over ranks are exact. All but the first depend on the rank.
std::vector<double> known_values(int rank) { return {1, rank + 1.0, -0.5 * rank, std::ldexp(1, rank % 40)}; }

double total_norm(const ParameterSet& parameters) {
  double square = 0;
  for (const auto& gradient : parameters.grads()) {
    const auto norm = norm_of(statistics_of(gradient));
    square += norm * norm;
  }
  return std::sqrt(square);
}

}  // namespace

RankRecorder::RankRecorder(DumpOptions options, Ranks& ranks, const ParameterSet& parameters, const Optimizer& optimizer,
                           const Precision* precision)
    : options_(std::move(options)),
      steps_(options_.steps),
      ranks_(ranks),
      parameters_(parameters),
      optimizer_(optimizer),
      precision_(precision) {}

RankParameter* RankRecorder::parameter(const std::string& name) {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &notes_.parameters[found->second];
}

// Removes files of an earlier run, which a comparison would take for files of this run.
void RankRecorder::remove_earlier(int64_t attempt) const {
  remove_later_steps(options_.dir, attempt, ranks_.rank());
  for (int r = ranks_.size(); ranks_.is_main() && remove_later_steps(options_.dir, attempt, r) > 0; ++r) {
  }
}

void RankRecorder::begin(int64_t attempt) {
  if (!std::exchange(begun_, true)) remove_earlier(attempt);
  open_ = true;
  notes_ = {};
  index_.clear();
  notes_.step = attempt;
  notes_.rank = ranks_.rank();
  notes_.ranks = ranks_.size();
  notes_.host = host_name();
  notes_.version = NPU_TRAIN_VERSION;
  notes_.cpu = at::get_cpu_capability();
  notes_.threads = at::get_num_threads();
  for (const auto& p : parameters_) {
    index_.emplace(p.name, notes_.parameters.size());
    auto& note = notes_.parameters.emplace_back();
    note.name = p.name;
    note.numel = p.value.numel();
    note.before = digest_text(p.value);
  }
  watch_gradients();
}

// Records this rank's own gradients: the hook of a leaf receives the gradient of one backward pass, before it is accumulated and reduced.
void RankRecorder::watch_gradients() {
  remove_hooks();
  for (const auto& p : parameters_) {
    if (!p.value.requires_grad() || !p.value.is_leaf()) continue;
    const auto hook = p.value.register_hook([this, name = p.name](const at::Tensor& gradient) {
      if (!gradient.defined()) return;
      const auto statistics = statistics_of(gradient);
      const std::lock_guard lock(mutex_);
      auto* note = parameter(name);
      if (note == nullptr) return;
      ++note->passes;
      note->local_square += norm_of(statistics) * norm_of(statistics);
      note->local_sum += sum_of(gradient, statistics);
    });
    hooks_.emplace_back(p.value, hook);
  }
}

void RankRecorder::remove_hooks() {
  for (const auto& [tensor, hook] : hooks_) tensor.remove_hook(hook);
  hooks_.clear();
}

void RankRecorder::on_loss(const at::Tensor& loss, int64_t /*attempt*/, int /*micro_batch*/) {
  if (open_ && !notes_.batches.empty()) notes_.batches.back().loss = loss.detach().to(at::kCPU, at::kDouble).item<double>();
}

void RankRecorder::on_batch(const Batch& batch, int64_t attempt, int micro_batch) {
  const at::NoGradGuard no_grad;
  if (!steps_.contains(attempt)) return;
  if (micro_batch == 0) begin(attempt);
  notes_.batches.push_back(note_of(batch));
}

void RankRecorder::phase_begin(Phase phase, int64_t attempt, int /*micro_batch*/) {
  const at::NoGradGuard no_grad;
  if (phase == Phase::Reduce && steps_.contains(attempt) && (!open_ || notes_.step != attempt)) begin(attempt);  // this rank has no batch
  if (phase != Phase::Optimizer || !open_) return;
  notes_.lr = optimizer_.lr();
  notes_.loss_scale = precision_ != nullptr ? precision_->scale() : 1;
}

void RankRecorder::phase_end(Phase phase, int64_t /*attempt*/, int /*micro_batch*/) {
  if (!open_) return;
  const at::NoGradGuard no_grad;
  if (phase == Phase::Reduce) reduced();
  if (phase == Phase::Unscale) notes_.norm = total_norm(optimizer_.parameters());
  if (phase == Phase::Clip) clipped();
  if (phase == Phase::Optimizer) end();
}

void RankRecorder::phase_error(Phase /*phase*/, int64_t /*attempt*/, int /*micro_batch*/, std::exception_ptr /*error*/) {
  open_ = false;
  remove_hooks();
}

void RankRecorder::reduced() {
  remove_hooks();
  for (const auto& p : optimizer_.parameters()) {
    auto* note = parameter(p.name);
    const auto& gradient = p.value.grad();
    if (note == nullptr || !gradient.defined()) continue;
    const auto statistics = statistics_of(gradient);
    note->dtype = c10::toString(gradient.scalar_type());
    note->reduced = digest_text(gradient);
    note->reduced_norm = norm_of(statistics);
    note->reduced_sum = sum_of(gradient, statistics);
  }
  notes_.portable = PortableRandom::is_on();
  notes_.seed = std::to_string(notes_.portable ? PortableRandom::position().seed : at::detail::getDefaultCPUGenerator().current_seed());
  const auto values = known_values(ranks_.rank());
  notes_.known_sums.assign(values.size(), 0);
  for (int r = 0; r < ranks_.size(); ++r)
    for (size_t i = 0; i < values.size(); ++i) notes_.known_sums[i] += known_values(r)[i];
  notes_.summed = ranks_.sums(values);
}

void RankRecorder::clipped() {
  notes_.clipped_norm = total_norm(optimizer_.parameters());
  for (const auto& p : optimizer_.parameters())
    if (auto* note = parameter(p.name)) note->clipped = digest_text(p.value.grad());
}

void RankRecorder::end() {
  open_ = false;
  bool changed = false;
  for (const auto& p : parameters_) {
    auto* note = parameter(p.name);
    if (note == nullptr) continue;
    note->after = digest_text(p.value);
    changed |= note->after != note->before;
  }
  notes_.taken = changed;
  const auto& wanted = options_.ranks;
  if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), ranks_.rank()) == wanted.end()) return;
  const auto folder = rank_folder(options_.dir, notes_.step, notes_.rank);
  make_folder(folder);
  save_json(folder / kRankNotes, to_json(notes_));
}

}  // namespace npu_train::detail

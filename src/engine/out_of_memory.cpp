#include "out_of_memory.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <optional>

#include "memory_steps.hpp"
#include "model_precision.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/report/number.hpp"
#include "npu_train/report/text_table.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kSmall = 2, kLarge = 3;

std::string size_text(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

std::string indented(const std::string& lines) {
  std::string out = "    ";
  for (size_t i = 0; i < lines.size(); ++i) {
    out += lines[i];
    if (lines[i] == '\n' && i + 1 < lines.size()) out += "    ";
  }
  return out;
}

// As the step does it, without the optimizer.
void forward_backward(Task& task, Precision& precision, const std::vector<Batch>& batches, MemoryRecorder& recorder) {
  Observers observers;
  observers.add(&recorder);
  for (size_t k = 0; k < batches.size(); ++k) {
    StepOutput output;
    observers.run(Phase::Forward, 0, static_cast<int>(k), [&] {
      const auto scope = precision.forward_scope();
      output = task.training_step(precision.cast_input(batches[k]));
    });
    observers.run(Phase::Backward, 0, static_cast<int>(k), [&] {
      backend_of(device_of(output.loss.device())).backward(precision.scale_loss(output.loss));
      precision.collect_gradients();
    });
  }
}

// Rows of a batch, of memory of their own; repeated where it has too few.
Batch rows_of(const Batch& batch, int64_t count) {
  const auto rows = batch.rows();
  Batch out = batch;
  std::vector<Batch> single;
  for (int64_t i = 0; i < count; ++i) single.push_back(batch.narrow(i % rows, 1));
  size_t field = 0;
  for (const auto& [name, whole] : batch.fields()) {
    const auto at = field++;
    if (whole.dim() == 0 || whole.size(0) != rows) continue;
    std::vector<at::Tensor> pieces;
    for (const auto& one : single) pieces.push_back(one.fields()[at].second);
    out.set(name, at::cat(pieces));
  }
  out.size = count;
  out.weight = static_cast<double>(count);
  return out;
}

// The failed step again.
class Explanation {
 public:
  Explanation(Run& run, const RunConfig& config, const Parts& parts, FailedWindow failed)
      : run_(run), config_(config), parts_(parts), failed_(std::move(failed)), random_(rng_state()) {
    for (const auto& [name, buffer] : run_.task->buffers()) buffers_.emplace_back(buffer, buffer.detach().clone());
  }
  ~Explanation() {
    forget();
    const at::NoGradGuard no_grad;
    for (auto& [buffer, value] : buffers_) buffer.data().copy_(value);
    set_rng_state(random_);
  }
  Explanation(const Explanation&) = delete;
  Explanation& operator=(const Explanation&) = delete;

  Error error(const Error& cause) {
    observe();
    const auto text = place() + "\n" + holdings() + layers();
    find_fitting_changes();
    return Error(ErrorKind::OutOfMemory, "Trainer", text + changes() + "  the device said: " + said(cause) + "\n  hint: " + hint(), "",
                 cause.cause());
  }

 private:
  const Device& device() const { return run_.device; }
  bool exact() const { return device().kind == "sim_npu" || device().is_cpu(); }

  void forget() {
    run_.optimizer->zero_grad();
    run_.task->parameters().zero_grad();
    backend_of(device()).empty_cache(device());
  }

  void observe() {
    forget();
    resident_ = resident_memory(run_.loop->parts(), failed_.batches);
    for (const auto& b : failed_.batches) rows_ = std::max(rows_, b.rows()), window_rows_ += b.rows();
    const auto* loader = run_.loop->parts().train_loader;  // the last window of an epoch may be short
    if (const auto full = loader != nullptr ? loader->options().batch_size : 0; rows_ <= full)
      window_rows_ = full * config_.trainer.accumulate_grad_batches;
    samples_ = failed_.batches.front();
    micro_batches_ = static_cast<int64_t>(failed_.batches.size());
    {
      MemoryRecorder recorder(*run_.task, device(), run_.optimizer->parameters(), resident_.total());
      try {
        forward_backward(*run_.task, *run_.precision, failed_.batches, recorder);
      } catch (...) {  // as it was to be expected
        if (translate_current_exception("").kind() != ErrorKind::OutOfMemory) throw;
      }
      trace_ = recorder.take();
    }
    failed_.batches.clear();
  }

  std::string place() const {
    const bool again = trace_.refused > 0;
    const auto phase = again && trace_.phase >= 0 ? static_cast<Phase>(trace_.phase) : failed_.phase;
    std::string out = c10::str("out of memory in the ", phase_name(phase), " of micro-batch ", failed_.micro_batch + 1, " of ",
                               micro_batches_, " of ", rows_, " samples");
    if (again && !trace_.layer.empty()) out += " at " + trace_.layer;
    const auto total = backend_of(device()).memory(device()).total;
    if (!again) {
      out += "; it did not run out when forward and backward were run once more alone";
      if (failed_.phase >= Phase::Optimizer)
        out += "; the optimizer had begun, so that parameters may be half updated: go on from a checkpoint";
      return out;
    }
    out += ": " + size_text(trace_.refused) + " more were wanted; tensors hold " + size_text(trace_.refused_allocated) + " of " +
           (total > 0 ? size_text(total) : "the device");
    const auto gaps = trace_.refused_reserved - trace_.refused_allocated;
    if (!exact())
      out +=
          c10::str(", the allocator's gaps ", size_text(gaps), " (",
                   short_number(100.0 * static_cast<double>(gaps) / static_cast<double>(std::max<int64_t>(1, trace_.refused_reserved)), 2),
                   " % of its ", size_text(trace_.refused_reserved), ")");
    return out;
  }

  std::string holdings() const {
    auto uses = trace_.live_after(trace_.refused > 0 ? trace_.refused_at : trace_.peak_event() + 1);
    const auto resident = resident_.by_use();
    std::vector<std::string> parts;
    for (size_t i = 0; i < kMemoryUses; ++i)
      if (const auto bytes = uses[i] + resident[i]; bytes > 0)
        parts.push_back(std::string(memory_use_name(static_cast<MemoryUse>(i))) + " " + size_text(bytes));
    return std::string("  ") + (trace_.refused > 0 ? "then" : "at its peak") + " there were: " + join(parts) + "\n";
  }

  std::string layers() const {
    if (trace_.last_layers.empty()) return "";
    TextTable table({"layer", "class", "phase", "shapes", "allocated", "reserved"});
    for (const auto& r : trace_.last_layers)
      table.add_row({r.layer, r.type, r.phase, r.shapes, size_text(r.allocated), r.reserved < 0 ? "-" : size_text(r.reserved)});
    return "  the last layers:\n" + indented(table.str());
  }

  // Windows of few samples with the run's own tensors; the second micro-batch of one finds gradients.
  std::optional<MemoryModel> measure(Task& task, Precision& precision, int64_t micro_batches) {
    const auto trace = [&](int64_t rows) {
      forget();
      const std::vector<Batch> window(micro_batches > 1 ? 2 : 1, rows_of(samples_, rows));
      MemoryRecorder recorder(task, device(), run_.optimizer->parameters());
      forward_backward(task, precision, window, recorder);
      return recorder.take();
    };
    try {
      trace(kSmall);
      auto small = trace(kSmall);
      return MemoryModel(resident_, std::move(small), kSmall, trace(kLarge), kLarge);
    } catch (...) {
      if (translate_current_exception("").kind() != ErrorKind::OutOfMemory) throw;
      return std::nullopt;
    }
  }

  int64_t room() const {
    const auto total = backend_of(device()).memory(device()).total;
    const auto seen = trace_.refused > 0 ? trace_.refused_reserved + trace_.refused : total;
    return total > 0 ? std::min(total, seen) : seen;
  }

  // The largest micro-batch below the failed one that divides the window and fits; 0: none.
  int64_t fitting_micro_batch(const MemoryModel& model) const {
    for (int64_t rows = rows_ - 1; rows >= 1; --rows)
      if (window_rows_ % rows == 0 && model.fits(rows, room(), exact())) return rows;
    return 0;
  }

  void propose(const std::string& overrides, const MemoryModel& model, int64_t rows, const std::string& cost) {
    proposals_.push_back({overrides, size_text(exact() ? model.peak(rows).allocated : model.peak(rows).reserved), cost});
  }

  std::string micro_batch_overrides(int64_t rows) const {
    return c10::str("data.batch_size=", rows, " trainer.accumulate_grad_batches=", window_rows_ / rows);
  }

  // The cheapest first.
  void find_fitting_changes() {
    if (const auto model = measure(*run_.task, *run_.precision, 2))
      if (const auto rows = fitting_micro_batch(*model); rows > 0)
        propose(micro_batch_overrides(rows), *model, rows,
                std::string("the same update, about the same time") +
                    (buffers_.empty() ? "" : "; statistics of normalisation layers are of smaller batches"));
    propose_precision();
    propose_checkpointing();
  }

  void propose_precision() {
    const auto can = backend_of(device()).capabilities(device());
    if (run_.precision->low_precision_dtype() != at::kFloat || !(can.native_bf16 || can.native_fp16)) return;
    auto options = precision_options(config_);
    options.mode = can.native_bf16 ? "bf16-mixed" : "16-mixed";
    const auto precision = make_precision(options, device());
    const auto model = measure(*run_.task, *precision, micro_batches_);
    if (model && model->fits(rows_, room(), exact()))
      propose("precision=" + options.mode, *model, rows_, "activations of half the size, mostly faster; other roundings");
  }

  void propose_checkpointing() {
    if (run_.model.module == nullptr || run_.model.blocks.empty() || config_.trainer.gradient_checkpointing != "none") return;
    std::vector<bool> marks(run_.model.blocks.size(), true);
    marks.back() = false;
    const auto task = parts_.tasks.make(config_.task, "task", with_checkpoints(run_.model, marks));
    task->set_training(true);
    const std::string change = "trainer.gradient_checkpointing=blocks",
                      cost = "the same update; forwards run twice: about a third more time";
    if (const auto model = measure(*task, *run_.precision, micro_batches_); model && model->fits(rows_, room(), exact())) {
      propose(change, *model, rows_, cost);
    } else if (model && proposals_.empty()) {
      const auto in_pieces = measure(*task, *run_.precision, 2);
      if (const auto rows = in_pieces ? fitting_micro_batch(*in_pieces) : 0; rows > 0)
        propose(change + " " + micro_batch_overrides(rows), *in_pieces, rows, cost);
    }
  }

  std::string hint() const {
    return proposals_.empty() ? "nothing that was tried would fit: smaller pictures, a smaller model or a larger card"
                              : "the cheapest change that would fit is " + proposals_.front().overrides;
  }

  std::string changes() const {
    if (proposals_.empty()) return "";
    TextTable table({"override", "peak", "cost"});
    for (const auto& p : proposals_) table.add_row({p.overrides, p.peak, p.cost});
    return "  what would fit, predicted from steps of 2 and 3 samples:\n" + indented(table.str());
  }

  // Without the place and the hint that the translation put around it.
  static std::string said(const Error& cause) {
    std::string text = cause.what();
    if (const auto end = text.find("; hint: "); end != std::string::npos) text.resize(end);
    if (const auto start = text.find("] "); start != std::string::npos && text.starts_with("[")) text.erase(0, start + 2);
    return text;
  }

  struct Proposal {
    std::string overrides, peak, cost;
  };

  Run& run_;
  const RunConfig& config_;
  const Parts& parts_;
  FailedWindow failed_;
  State random_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
  ResidentMemory resident_;
  MemoryTrace trace_;
  Batch samples_;
  int64_t rows_ = 0, window_rows_ = 0, micro_batches_ = 1;
  std::vector<Proposal> proposals_;
};

}  // namespace

Error explain_out_of_memory(Run& run, const RunConfig& config, const Parts& parts, FailedWindow failed, const Error& cause) {
  try {
    return Explanation(run, config, parts, std::move(failed)).error(cause);
  } catch (...) {  // a device that is full, or broken, may not take part in an explanation
    return cause;
  }
}

}  // namespace npu_train::detail

#include "memory_advice.hpp"

#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/dist/offload.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"

namespace npu_train::detail {
namespace {

class Advice {
 public:
  Advice(const RunView& run, const FailedWork& failed) : run_(run), config_(run.config), parts_(run.parts), failed_(failed) {}

  MemoryAdvice find() {
    const auto step = failed_.pass == Pass::Sanity ? fit_training() : "";
    if (!step) return std::move(out_);
    propose_fewer_samples();
    propose_precision();
    if (training()) propose_checkpointing();
    if (training() && !failed_.on_host && out_.changes.empty()) propose_windows_on_host();
    if (failed_.pass == Pass::Sanity)
      out_.changes.push_back(
          {"trainer.num_sanity_val_steps=0", "-", "omits this check; the validation after the epoch needs the same memory"});
    if (failed_.pass == Pass::Sanity || failed_.pass == Pass::Validation)
      out_.changes.push_back({"trainer.limit_val_batches=0", "-", "no validation at all"});
    for (auto& change : out_.changes)
      if (!step->empty()) change.overrides += " " + *step, change.cost += "; the training step needs fewer samples as well";
    return std::move(out_);
  }

 private:
  bool training() const { return failed_.pass == Pass::Training; }

  // Returns the overrides with which the first training step after a sanity validation would fit: "" if it fits without changes, nullopt if
  // no overrides make it fit. If they do not, a change of the validation would only postpone the failure.
  std::optional<std::string> fit_training() {
    const auto* loader = run_.loop->parts().train_loader;
    if (loader == nullptr) return "";
    auto step = failed_;
    step.pass = Pass::Training;
    step.rows = loader->options().batch_size;
    step.micro_batches = config_.trainer.accumulate_grad_batches;
    step.window_rows = step.rows * step.micro_batches;
    step.on_host = false;
    std::erase_if(step.resident.tensors, [](const auto& t) { return t.first == MemoryUse::Batch; });
    step.resident.tensors.emplace_back(MemoryUse::Batch, step.samples.nbytes() / step.samples.rows() * step.window_rows);
    Advice advice(run_, step);
    return advice.fit_step(out_.unmeasured);
  }

  std::optional<std::string> fit_step(std::vector<std::string>& unmeasured) {
    const std::string what = "the training step that follows";
    const auto whole = measure(what, *run_.task, *run_.precision, failed_.micro_batches);
    if (whole && fits(*whole, failed_.rows)) return "";
    const auto pieces = whole && failed_.micro_batches == 1 ? measure(what, *run_.task, *run_.precision, 2) : whole;
    if (const auto rows = pieces ? fitting_rows(*pieces) : 0; rows > 0) return fewer_samples(rows);
    if (out_.unmeasured.empty())
      out_.unmeasured.push_back(str_cat(what, ": it needs ", human_bytes(static_cast<double>(whole->peak(failed_.rows).allocated)), " of ",
                                        human_bytes(static_cast<double>(failed_.room)), ", and smaller micro-batches do not fit either"));
    unmeasured = out_.unmeasured;
    return std::nullopt;
  }

  MemoryTrace trace(Task& task, Precision& precision, int64_t micro_batches, int64_t rows, bool on_host) {
    forget_gradients(run_);
    auto few = rows_of(failed_.samples, rows);
    if (training() && !on_host) few = to_device(few, run_.device);  // a window's micro-batches are on the device and are counted separately
    const std::vector<Batch> batches(training() && micro_batches > 1 ? 2 : 1, few);
    MemoryRecorder recorder(task, run_.device, on_device(*run_.strategy, run_.optimizer->parameters()));
    run_again(task, precision, run_.device, failed_.pass, batches, recorder, on_host);
    return recorder.take();
  }

  // Measures windows of few samples with the run's own tensors. Two micro-batches represent a window of several, since the gradients exist
  // from the second one on.
  std::optional<MemoryModel> measure(const std::string& change, Task& task, Precision& precision, int64_t micro_batches) {
    return measure(change, task, precision, micro_batches, failed_.on_host);
  }
  std::optional<MemoryModel> measure(const std::string& change, Task& task, Precision& precision, int64_t micro_batches, bool on_host) {
    for (const int64_t few : {kFewSamples, int64_t{1}}) {
      int64_t rows = few;
      try {
        trace(task, precision, micro_batches, rows, on_host);
        auto small = trace(task, precision, micro_batches, rows, on_host);
        auto large = trace(task, precision, micro_batches, ++rows, on_host);
        out_.few = std::min(out_.few, few);
        auto resident = failed_.resident;
        if (on_host) std::erase_if(resident.tensors, [](const auto& t) { return t.first == MemoryUse::Batch; });
        return MemoryModel(std::move(resident), std::move(small), few, std::move(large), few + 1);
      } catch (...) {
        const auto error = translate_current_exception("memory");
        const bool ran_out = error.kind() == ErrorKind::OutOfMemory;
        if (few > 1 && !ran_out) throw;
        if (few > 1) continue;
        out_.unmeasured.push_back(change + (ran_out
                                                ? str_cat(rows == 1 ? ": not even 1 sample fits" : ": 1 sample fits, 2 do not")
                                                : str_cat(": more than ", kFewSamples, " samples do not fit, and the model refuses 1")));
      }
    }
    return std::nullopt;
  }

  bool fits(const MemoryModel& model, int64_t rows) const { return model.fits(rows, failed_.room, failed_.exact); }

  // Returns the largest micro-batch up to `most` that divides the window and fits; 0 if there is none. In passes other than training,
  // returns the largest power of two that fits.
  int64_t fitting_rows(const MemoryModel& model) const { return fitting_rows(model, failed_.rows - 1); }
  int64_t fitting_rows(const MemoryModel& model, int64_t most) const {
    if (!training()) return power_below(std::min(failed_.rows - 1, model.largest_batch(failed_.room, failed_.exact)));
    for (int64_t rows = most; rows >= 1; --rows)
      if (failed_.window_rows % rows == 0 && fits(model, rows)) return rows;
    return 0;
  }

  void propose(const std::string& overrides, const MemoryModel& model, int64_t rows, const std::string& cost) {
    const auto peak = model.peak(rows);
    out_.changes.push_back({overrides, human_bytes(static_cast<double>(failed_.exact ? peak.allocated : peak.reserved)), cost});
  }

  std::string fewer_samples(int64_t rows) const {
    switch (failed_.pass) {
      case Pass::Training:
        return str_cat("data.batch_size=", rows, " trainer.accumulate_grad_batches=", failed_.window_rows / rows);
      case Pass::Prediction:
        return str_cat("to predict at most ", rows, rows == 1 ? " sample" : " samples", " at a time");
      case Pass::Sanity:
      case Pass::Validation:
        break;
    }
    return str_cat("data.val_batch_size=", rows);
  }

  // Warns if normalisation layers would see smaller batches than now.
  std::string note_of_pieces() const {
    return run_.task->buffers().empty() ? "" : "; normalisation layers compute their statistics over smaller batches";
  }

  void propose_fewer_samples() {
    const auto model = measure(training() ? "smaller micro-batches" : "smaller batches", *run_.task, *run_.precision, 2);
    if (!model) return;
    if (const auto rows = fitting_rows(*model); rows > 0)
      propose(fewer_samples(rows), *model, rows,
              training() ? "the same update, about the same time" + note_of_pieces() : "the same results, about the same time");
  }

  void propose_precision() {
    const auto can = backend_of(run_.device).capabilities(run_.device);
    if (run_.precision->low_precision_dtype() != at::kFloat || !(can.native_bf16 || can.native_fp16)) return;
    auto options = precision_options(config_);
    options.mode = can.native_bf16 ? "bf16-mixed" : "16-mixed";
    const auto precision = make_precision(options, run_.device);
    const auto change = "precision=" + options.mode;
    if (const auto model = measure(change, *run_.task, *precision, failed_.micro_batches); model && fits(*model, failed_.rows))
      propose(change, *model, failed_.rows, "activations of half the size, usually faster; different rounding");
  }

  void propose_checkpointing() {
    if (run_.model.module == nullptr || run_.model.blocks.empty() || config_.trainer.gradient_checkpointing != "none") return;
    std::vector<bool> marks(run_.model.blocks.size(), true);
    marks.back() = false;
    const auto task = parts_.tasks.make(config_.task, "task", with_checkpoints(run_.model, marks), parts_.metrics);
    task->set_training(true);
    const std::string change = "trainer.gradient_checkpointing=blocks",
                      cost = "the same update; forwards run twice, which takes about a third more time";
    const auto model = measure(change, *task, *run_.precision, failed_.micro_batches);
    if (model && fits(*model, failed_.rows)) return propose(change, *model, failed_.rows, cost);
    if (!model || !out_.changes.empty()) return;
    const auto in_pieces = measure(change + " with smaller micro-batches", *task, *run_.precision, 2);
    if (const auto rows = in_pieces ? fitting_rows(*in_pieces) : 0; rows > 0)
      propose(change + " " + fewer_samples(rows), *in_pieces, rows, cost + note_of_pieces());
  }

  // Proposes remedies if the inputs of a window fill the device: to keep the inputs on the host, or to make windows smaller.
  void propose_windows_on_host() {
    const std::string change = "windows that are kept on the host";
    if (run_.loop->parts().strategy->ranks().size() == 1) {
      const auto model = measure(change, *run_.task, *run_.precision, 2, /*on_host=*/true);
      const auto rows = model ? fitting_rows(*model, failed_.micro_batches > 1 ? failed_.rows : failed_.rows - 1) : 0;
      if (rows > 0)
        propose("trainer.on_oom=retry " + fewer_samples(rows), *model, rows,
                "the same update; a window is kept on the host, and its micro-batches are copied one at a time" + note_of_pieces());
    }
    const auto alone = measure("smaller windows", *run_.task, *run_.precision, 1, /*on_host=*/true);
    const auto rows = alone ? std::min(alone->largest_batch(failed_.room, failed_.exact), failed_.window_rows - 1) : 0;
    if (const auto fewer = power_below(rows); fewer > 0)
      propose(str_cat("data.batch_size=", fewer, config_.trainer.accumulate_grad_batches > 1 ? " trainer.accumulate_grad_batches=1" : ""),
              *alone, fewer,
              str_cat("a different update, with ", fewer, " samples instead of ", failed_.window_rows, "; adapt the learning rate"));
  }

  const RunView& run_;
  const RunConfig& config_;
  const Parts& parts_;
  const FailedWork& failed_;
  MemoryAdvice out_;
};

}  // namespace

MemoryAdvice changes_that_fit(const RunView& run, const FailedWork& failed) { return Advice(run, failed).find(); }

void forget_gradients(const RunView& run) {
  run.optimizer->zero_grad();
  on_device(*run.strategy, run.optimizer->parameters()).zero_grad();
  run.loop->parts().parameters->zero_grad();
  backend_of(run.device).empty_cache(run.device);
}

}  // namespace npu_train::detail

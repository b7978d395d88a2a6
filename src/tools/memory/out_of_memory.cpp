#include "npu_train/tools/memory/out_of_memory.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "memory_advice.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/dist/offload.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/report/text_table.hpp"

namespace npu_train {
namespace {

using namespace detail;

std::string memory_text(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

std::string indented(const std::string& lines) {
  std::string out = "    ";
  for (size_t i = 0; i < lines.size(); ++i) {
    out += lines[i];
    if (lines[i] == '\n' && i + 1 < lines.size()) out += "    ";
  }
  return out;
}

// Returns the message without the place and the hint that the translation of c10's error added.
std::string said(const Error& cause) {
  auto text = without_hint(cause.what());
  if (const auto end = text.find("] "); end != std::string::npos && text.starts_with("[")) text.erase(0, end + 2);
  return text;
}

std::string sizes_text(const MemoryByUse& uses) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < kMemoryUses; ++i)
    if (uses[i] > 0) parts.push_back(std::string(memory_use_name(static_cast<MemoryUse>(i))) + " " + memory_text(uses[i]));
  return parts.empty() ? "no objects of this run" : join(parts);
}

std::string share_text(int64_t part, int64_t whole) {
  return memory_text(part) + " (" + percentage(static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole)), 2) + ")";
}

// Returns "tensors use 2.0 GiB of 2.0 GiB".
std::string filled_text(int64_t allocated, int64_t total) {
  return "tensors use " + memory_text(allocated) + " of " + (total > 0 ? memory_text(total) : "the device");
}

Error report(const std::string& text, const std::string& hint, const Error& cause) {
  return Error(ErrorKind::OutOfMemory, "Trainer", text + "  message of the device: " + said(cause) + "\n  hint: " + hint, "",
               cause.cause());
}

// Explains why trainer.on_oom=retry did not help; "" if it was not requested.
std::string no_retry(const RunConfig& config, const std::string& reason) {
  return config.trainer.on_oom == "retry" ? "  trainer.on_oom=retry did not help: " + reason + "\n" : "";
}

// Runs the failed work again and explains it.
class Explanation {
 public:
  Explanation(const RunView& run, FailedWindow failed) : run_(run), config_(run.config), failed_(std::move(failed)), random_(rng_state()) {
    for (const auto& [name, buffer] : run_.task->buffers())
      buffers_.emplace_back(buffer, buffer.detach().to(at::kCPU, false, /*copy=*/true));
  }
  ~Explanation() {
    forget_gradients(run_);
    const at::NoGradGuard no_grad;
    for (auto& [buffer, value] : buffers_) buffer.data().copy_(value);
    set_rng_state(random_);
  }
  Explanation(const Explanation&) = delete;
  Explanation& operator=(const Explanation&) = delete;

  Error error(const Error& cause) {
    observe();
    const auto text = place() + "\n" + holdings() + fragmentation() + layers();
    {
      const ScopedLogSilence silence;  // trials of other precisions log warnings about operators
      advice_ = blind() ? changes_predicted_on_host() : changes_that_fit(run_, work_);
    }
    return report(text + changes() + no_retry(config_, reason()), hint(), cause);
  }

 private:
  const Device& device() const { return run_.device; }
  bool training() const { return failed_.pass == Pass::Training; }
  // torch_npu's allocator reports no blocks to libtorch.
  bool blind() const { return device().kind == "npu"; }

  MemoryAdvice changes_predicted_on_host() const {
    MemoryAdvice out;
    const auto overrides = training() ? fitting_overrides(config_, work_.room, run_.parts) : "";
    if (!overrides.empty()) out.changes.push_back({overrides, "-", "the same update, but for batch norms over fewer samples"});
    if (!training()) out.unmeasured.push_back("torch_npu's allocator reports no blocks of a validation or a prediction");
    return out;
  }

  void observe() {
    forget_gradients(run_);
    size_up();
    const auto& updated = on_device(*run_.strategy, run_.optimizer->parameters());
    MemoryRecorder recorder(*run_.task, device(), updated, resident_.total());
    try {
      run_again(*run_.task, *run_.precision, device(), failed_.pass, failed_.batches, recorder, failed_.on_host);
    } catch (...) {  // expected
      if (translate_current_exception("").kind() != ErrorKind::OutOfMemory) throw;
      again_ = true;
    }
    trace_ = recorder.take();
    failed_.batches.clear();
    const auto total = backend_of(device()).memory(device()).total;
    const auto seen = trace_.refused > 0 ? trace_.refused_reserved + trace_.refused : total;
    work_.room = total > 0 ? std::min(total, seen) : seen;
  }

  // Determines the sizes of the failed work, and the other memory that is in use on the device.
  void size_up() {
    std::vector<Batch> there;
    int64_t bytes = 0, bytes_there = 0;
    for (const auto& b : failed_.batches) {
      work_.rows = std::max(work_.rows, b.rows());
      work_.window_rows += b.rows();
      bytes += b.nbytes();
      if (b.input().device() == device().c10()) there.push_back(b), bytes_there += b.nbytes();
    }
    resident_ = resident_memory(run_.loop->parts(), there);
    work_.pass = failed_.pass;
    work_.samples = rows_of(to_device(failed_.batches.front(), Device{}, /*non_blocking=*/false), kMoreSamples);
    work_.on_host = failed_.on_host;
    work_.micro_batches = failed_.micro_batches;
    work_.exact = device().kind == "sim_npu" || device().is_cpu();
    work_.resident = resident_;
    if (!training()) return;
    const auto loaded_rows = work_.window_rows;
    const auto* loader = run_.loop->parts().train_loader;  // the last window of an epoch may be shorter, or only partially loaded
    if (const auto full = loader != nullptr ? loader->options().batch_size : 0; work_.rows <= full)
      work_.window_rows = full * config_.trainer.accumulate_grad_batches;
    if (failed_.on_host) return;
    const auto missing = bytes / std::max<int64_t>(1, loaded_rows) * work_.window_rows - bytes_there;
    if (missing > 0) work_.resident.tensors.emplace_back(MemoryUse::Batch, missing);
  }

  std::string place() const {
    const bool seen = trace_.refused > 0 && trace_.phase >= 0;
    auto phase = seen ? static_cast<Phase>(trace_.phase) : failed_.phase;
    if (phase == Phase::Validation) phase = Phase::Forward;
    auto out = std::string("out of memory in the ") + work_name(phase) + " of " + batch_text();
    if (seen && !trace_.layer.empty()) out += " at " + trace_.layer;
    const auto total = backend_of(device()).memory(device()).total;
    if (!again_) {
      out += "; a repetition of the same work alone did not run out of memory";
      return out + (failed_.phase >= Phase::Optimizer && training()
                        ? "; the optimizer had begun, so parameters may be partially updated: resume from a checkpoint"
                        : "");
    }
    if (trace_.refused == 0) return out;  // the host's allocator does not report the requested size
    return out + ": " + memory_text(trace_.refused) + " more were requested; " + filled_text(trace_.refused_allocated, total);
  }

  // Describes the allocator's memory that no tensor uses, and its largest gap, which only a simulation of the allocator can determine.
  std::string fragmentation() const {
    if (trace_.refused == 0) return "";
    const std::string begin = "  fragmentation: ";
    if (device().is_cpu()) return begin + "unknown, because the host's allocator does not report it\n";
    const auto plan = planned_gaps(resident_, trace_, trace_.refused_at);
    const auto largest = memory_text(plan.largest) + ", and " + memory_text(trace_.refused) + " were requested";
    if (device().kind == "sim_npu")
      return begin + "none, because the simulator counts only tensors; a simulated caching allocator would hold " +
             memory_text(plan.reserved) + " for them, with gaps of " + share_text(plan.gaps, plan.reserved) + ", the largest " + largest +
             "\n";
    const auto gaps = trace_.refused_reserved - trace_.refused_allocated;
    return begin + "gaps of " + share_text(gaps, trace_.refused_reserved) + " in " + memory_text(trace_.refused_reserved) +
           " held by the allocator; the largest gap, by simulation, is " + largest +
           (gaps >= trace_.refused ? "; together they would be enough: " +
                                         std::string(device().kind == "npu" ? "PYTORCH_NPU_ALLOC_CONF" : "PYTORCH_ALLOC_CONF") +
                                         "=expandable_segments:True keeps gaps small"
                                   : "") +
           "\n";
  }

  std::string batch_text() const {
    const auto samples = str_cat(work_.rows, work_.rows == 1 ? " sample" : " samples");
    switch (failed_.pass) {
      case Pass::Sanity:
        return str_cat("batch ", failed_.micro_batch + 1, " of the validation before the first step, ", samples);
      case Pass::Validation:
        return str_cat("batch ", failed_.micro_batch + 1, " of the validation, ", samples);
      case Pass::Prediction:
        return "a prediction of " + samples;
      case Pass::Training:
        break;
    }
    return str_cat("micro-batch ", failed_.micro_batch + 1, " of ", work_.micro_batches, " of ", samples);
  }

  std::string holdings() const {
    auto uses = trace_.live_after(trace_.refused > 0 ? trace_.refused_at : trace_.peak_event() + 1);
    const auto resident = resident_.by_use();
    for (size_t i = 0; i < kMemoryUses; ++i) uses[i] += resident[i];
    const char* when = blind() ? "besides activations, gradients and workspace," : trace_.refused > 0 ? "then" : "at its peak";
    return std::string("  ") + when + " the memory held: " + sizes_text(uses) + "\n";
  }

  std::string layers() const {
    if (trace_.last_layers.empty()) return "";
    TextTable table({"layer", "class", "phase", "shapes", "allocated", "reserved"});
    for (const auto& r : trace_.last_layers)
      table.add_row({r.layer, r.type, r.phase, r.shapes, memory_text(r.allocated), r.reserved < 0 ? "-" : memory_text(r.reserved)});
    return "  the last layers:\n" + indented(table.str());
  }

  std::string changes() const {
    std::string out;
    if (!advice_.changes.empty()) {
      TextTable table({"override", "peak", "cost"});
      for (const auto& c : advice_.changes) table.add_row({c.overrides, c.peak, c.cost});
      out = str_cat("  changes that would fit, predicted from ", training() ? "steps" : "forwards", " of ", advice_.few, " and ",
                    advice_.few + 1, " samples:\n") +
            indented(table.str());
    }
    if (!advice_.unmeasured.empty()) out += "  could not be predicted: " + join(advice_.unmeasured, "; ") + "\n";
    return out;
  }

  // Returns why the step was not retried, or not retried again.
  std::string reason() const {
    if (!training()) return "it repeats only windows of the training; a validation or a prediction keeps its batch size";
    if (failed_.phase >= Phase::Optimizer) return "the optimizer had begun, and parameters may be partially updated";
    if (work_.rows <= 1) return "micro-batches of 1 sample are the smallest possible";
    return "the model refuses smaller micro-batches";
  }

  std::string hint() const {
    if (!advice_.changes.empty()) return "the cheapest change that would fit is " + advice_.changes.front().overrides;
    const auto other = resident_.by_use()[static_cast<size_t>(MemoryUse::Other)];
    const auto elsewhere = other > resident_.total() / 10 ? "; " + memory_text(other) + " are held by objects outside this run" : "";
    if (advice_.unmeasured.empty())
      return "none of the examined changes would certainly fit; try a smaller data.batch_size, a lower precision, smaller images, a "
             "smaller model or a "
             "larger card" +
             elsewhere;
    return "no change is known to fit, since " + advice_.unmeasured.front() + "; try smaller images, a smaller model or a larger card" +
           elsewhere;
  }

  const RunView& run_;
  const RunConfig& config_;
  FailedWindow failed_;
  State random_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
  ResidentMemory resident_;
  FailedWork work_;
  MemoryTrace trace_;
  bool again_ = false;
  MemoryAdvice advice_;
};

// Reports that memory ran out outside of a batch's computation.
Error explain_between_steps(const RunView& run, const Error& cause) {
  const auto memory = backend_of(run.device).memory(run.device);
  auto text = std::string(
      "out of memory outside of forward, backward and validation: in a callback, a checkpoint, or the reading of a step's results");
  if (!run.device.is_cpu()) text += "; " + filled_text(memory.allocated, memory.total) + " now";
  text += "\n  in use: " + sizes_text(resident_memory(run.loop->parts()).by_use()) + "\n";
  return report(text + no_retry(run.config, "it repeats only windows of the training"),
                "between steps no activations are held: check your own callbacks, and other users of the device", cause);
}

// Reports that memory ran out during setup.
Error explain_in_setup(const RunView& run, const Error& cause) {
  const auto memory = backend_of(run.device).memory(run.device);
  auto text = std::string("out of memory during setup, while ") + run.building + " on " + run.device.str();
  if (!run.device.is_cpu()) text += "; " + filled_text(memory.allocated, memory.total) + " now";
  MemoryByUse wanted{};
  const auto count = [&](MemoryUse use, const at::Tensor& t) { wanted[static_cast<size_t>(use)] += static_cast<int64_t>(t.nbytes()); };
  if (run.model.module != nullptr) {
    for (const auto& p : run.model.module->parameters()) count(MemoryUse::Parameters, p);
    for (const auto& b : run.model.module->buffers()) count(MemoryUse::Buffers, b);
  } else if (run.task != nullptr) {
    for (const auto& p : run.task->parameters().values()) count(MemoryUse::Parameters, p);
    for (const auto& [name, b] : run.task->buffers()) count(MemoryUse::Buffers, b);
  }
  text += "\n  the model needs: " + sizes_text(wanted) + "\n";
  return report(text + no_retry(run.config, "nothing was trained yet, and the batch has no effect"), run.remedy, cause);
}

class MemoryReport final : public RunObserver {
 public:
  std::optional<Error> explain(const RunView& run, std::optional<FailedWindow>& failed, const Error& error) override {
    if (error.kind() != ErrorKind::OutOfMemory) return std::nullopt;
    try {
      if (run.loop == nullptr) return explain_in_setup(run, error);
      if (!failed || failed->batches.empty()) return explain_between_steps(run, error);
      return Explanation(run, std::move(*failed)).error(error);
    } catch (...) {  // a full or broken device may make an explanation impossible
      return std::nullopt;
    }
  }
};

}  // namespace

void add_memory_report(Parts& parts) {
  parts.observers.add("memory_report", "reports the memory in use, and changes that would fit, when memory runs out",
                      [] { return std::make_unique<MemoryReport>(); });
}

}  // namespace npu_train

// Process-wide settings of libtorch that a run changes in a scope. Settings that the run does not configure are unchanged.
#pragma once

#include <ATen/Context.h>

#include <mutex>
#include <optional>

#include "engine/rank_setup.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/threads.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train {

/// A process-wide setting of libtorch that stays changed as long as any SharedSetting for it exists, because trainers in several threads
/// may end in any order.
template <class Value>
class SharedSetting {
 public:
  struct Place {
    Value (*get)();
    void (*set)(const Value&);
    std::mutex mutex{};
    int users = 0;
    Value before{};
  };
  /// Changes nothing if `wanted` is empty.
  SharedSetting(Place& place, const std::optional<Value>& wanted) : place_(wanted ? &place : nullptr) {
    if (place_ == nullptr) return;
    const std::lock_guard lock(place.mutex);
    if (place.users++ == 0) place.before = place.get();
    place.set(*wanted);
  }
  ~SharedSetting() {
    if (place_ == nullptr) return;
    const std::lock_guard lock(place_->mutex);
    if (--place_->users == 0) place_->set(place_->before);
  }
  SharedSetting(const SharedSetting&) = delete;
  SharedSetting& operator=(const SharedSetting&) = delete;

 private:
  Place* place_;
};

struct Determinism {
  bool on = false, warn_only = false, fill = true;
};
inline SharedSetting<Determinism>::Place& determinism() {
  static SharedSetting<Determinism>::Place place{
      [] {
        const auto& c = at::globalContext();
        return Determinism{c.deterministicAlgorithms(), c.deterministicAlgorithmsWarnOnly(), c.deterministicFillUninitializedMemory()};
      },
      [](const Determinism& d) {
        at::globalContext().setDeterministicAlgorithms(d.on, d.warn_only);
        at::globalContext().setDeterministicFillUninitializedMemory(d.fill);
      }};
  return place;
}
inline std::optional<Determinism> determinism_of(const RunConfig& config) {
  if (config.deterministic == "false") return std::nullopt;
  return Determinism{true, config.deterministic == "warn", false};  // filling uninitialised memory takes time and does not affect results
}

/// Whether cuDNN benchmarks its algorithms on the first batch of each shape.
inline SharedSetting<bool>::Place& cudnn_benchmark() {
  static SharedSetting<bool>::Place place{[] { return at::globalContext().benchmarkCuDNN(); },
                                          [](const bool& on) { at::globalContext().setBenchmarkCuDNN(on); }};
  return place;
}

/// TF32 settings for fp32 products and convolutions on a GPU.
struct Tf32 {
  at::Float32Precision products{}, convolutions{};
};
inline SharedSetting<Tf32>::Place& tf32() {
  constexpr auto kCuda = at::Float32Backend::CUDA;
  static SharedSetting<Tf32>::Place place{
      [] {
        auto& c = at::globalContext();
        return Tf32{c.float32Precision(kCuda, at::Float32Op::MATMUL), c.float32Precision(kCuda, at::Float32Op::CONV)};
      },
      [](const Tf32& t) {
        at::globalContext().setFloat32Precision(kCuda, at::Float32Op::MATMUL, t.products);
        at::globalContext().setFloat32Precision(kCuda, at::Float32Op::CONV, t.convolutions);
      }};
  return place;
}
inline std::optional<bool> on_or_off(const std::string& choice) {
  return choice == "auto" ? std::nullopt : std::optional<bool>(choice == "true");
}
inline std::optional<Tf32> tf32_of(const RunConfig& config) {
  const auto wanted = on_or_off(config.trainer.allow_tf32);
  if (!wanted) return std::nullopt;
  const auto precision = *wanted ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
  return Tf32{precision, precision};
}

/// The scope of a Trainer's call: sets threads, determinism and random numbers. The generators belong to the process, so the constructor
/// installs the run's state, and the destructor saves it and restores the program's state.
class ProcessState {
 public:
  /// `rng` is empty before the first call. `inside` is true while this object exists.
  ProcessState(const RunConfig& config, State& rng, bool& inside)
      : threads_(threads_of_rank(config)),
        deterministic_(determinism(), determinism_of(config)),
        benchmark_(cudnn_benchmark(), on_or_off(config.trainer.benchmark)),
        tf32_(tf32(), tf32_of(config)),
        rng_(rng),
        inside_(inside),
        host_(rng_state()) {
    if (config.rng == "portable") portable_.emplace(static_cast<uint64_t>(config.seed));
    if (!rng_.tensors.empty()) set_rng_state(rng_);
    inside_ = true;
  }
  ~ProcessState() {
    inside_ = false;
    rng_ = rng_state();
    set_rng_state(host_);
  }
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;

 private:
  ThreadCount threads_;
  SharedSetting<Determinism> deterministic_;
  SharedSetting<bool> benchmark_;
  SharedSetting<Tf32> tf32_;
  State& rng_;
  bool& inside_;
  State host_;
  std::optional<PortableRandom> portable_;
};

}  // namespace npu_train

#include "npu_train/device/random.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <mutex>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train {
namespace {

thread_local PortableRandom::Position now;

}  // namespace

PortableRandom::PortableRandom(uint64_t seed) : before_(now) { now = {.on = true, .seed = seed, .next = 0}; }
PortableRandom::~PortableRandom() { now = before_; }

PortableRandom::MicroBatch::MicroBatch(std::string_view pass, int64_t attempt, int64_t number)
    : key_(derive_seed(now.seed, pass, static_cast<uint64_t>(attempt), static_cast<uint64_t>(number))), before_(now) {
  now.seed = key_;
  now.next = 0;
}
PortableRandom::MicroBatch::~MicroBatch() { now = before_; }

PortableRandom::Position PortableRandom::position() { return now; }
void PortableRandom::set_position(const Position& position) { now = position; }

at::Tensor PortableRandom::uniform(at::IntArrayRef sizes, const c10::Device& device) {
  check(now.on, ErrorKind::Usage, "PortableRandom", "nothing is on for this thread; make a PortableRandom first, or set rng: portable");
  at::Tensor out = at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
  constexpr int64_t kPiece = 4096;  // values per stream; the streams depend on the number of values, not on the number of threads
  const uint64_t key = derive_seed(now.seed, "portable", now.next++);
  float* to = out.data_ptr<float>();
  const int64_t count = out.numel();
  at::parallel_for(0, (count + kPiece - 1) / kPiece, 4, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      Philox draw(key, static_cast<uint64_t>(piece));
      for (int64_t i = piece * kPiece; i < std::min(count, (piece + 1) * kPiece); ++i) to[i] = draw.uniform();
    }
  });
  return out.to(device);
}

namespace {

constexpr const char* kPortable = "portable";

PortableRandom::Position portable_of(const State& state) {
  const auto found = state.tensors.find(kPortable);
  if (found == state.tensors.end()) return {};
  const at::Tensor& t = found->second;
  check(t.scalar_type() == at::kLong && t.numel() == 2, ErrorKind::Checkpoint, "random",
        "the saved state of the portable numbers is not one: it must be two int64");
  return {.on = true, .seed = static_cast<uint64_t>(t[0].item<int64_t>()), .next = static_cast<uint64_t>(t[1].item<int64_t>())};
}

// Calls fn(device) for every available device, in the order of all_backends().
template <class Fn>
void for_devices(Fn fn) {
  for (const auto* backend : all_backends())
    for (int i = 0; i < backend->count(); ++i) fn(Device{backend->name(), i});
}

at::Tensor state_of(const Device& device) {
  auto generator = backend_of(device).generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void check_state(const Device& device, const at::Tensor& state) {
  const auto own = state_of(device);
  check(state.defined() && state.scalar_type() == own.scalar_type() && state.sizes() == own.sizes(), ErrorKind::Checkpoint, "random",
        "the saved state of the generator of ", device.str(), " is not one: it has ", state.defined() ? state.numel() : 0, " elements, ",
        own.numel(), " are expected");
}

void set_state(const Device& device, const at::Tensor& state) {
  auto generator = backend_of(device).generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  try {
    generator.set_state(state.to(at::kCPU).contiguous());
  } catch (const c10::Error& e) {
    throw Error(ErrorKind::Checkpoint, "random", "the saved state of the generator of " + device.str() + " is damaged", "",
                std::current_exception());
  }
}

// Restores the states. Does not throw: a failed device reports its error at its next use.
void put_back(const std::vector<std::pair<Device, at::Tensor>>& states, const PortableRandom::Position& portable) {
  PortableRandom::set_position(portable);
  for (const auto& [device, values] : states) {
    try {
      set_state(device, values);
    } catch (const std::exception& e) {
      log_warning("random: the generator of ", device.str(), " could not be restored: ", e.what());
    }
  }
}

}  // namespace

void seed_everything(uint64_t seed) {
  for_devices([&](const Device& device) {
    auto generator = backend_of(device).generator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  });
}

State rng_state() {
  State out;
  for_devices([&](const Device& device) { out.tensors[device.str()] = state_of(device); });
  if (const auto portable = PortableRandom::position(); portable.on)
    out.tensors[kPortable] = at::tensor({static_cast<int64_t>(portable.seed), static_cast<int64_t>(portable.next)});
  return out;
}

void set_rng_state(const State& state) {
  const auto before = rng_state();
  const auto portable = portable_of(state);
  const auto for_saved = [&](auto fn) {
    for_devices([&](const Device& device) {
      if (const auto found = state.tensors.find(device.str()); found != state.tensors.end()) fn(device, found->second);
    });
  };
  state.tensor("cpu", "random");
  for_saved(check_state);
  try {
    for_saved(set_state);
  } catch (...) {
    for_devices([&](const Device& device) { set_state(device, before.tensors.at(device.str())); });
    throw;
  }
  if (PortableRandom::is_on() && portable.on) PortableRandom::set_position(portable);
}

RandomState::RandomState(const std::vector<c10::Device>& devices) {
  std::vector<c10::Device> all = {c10::Device(c10::kCPU)};
  for (const auto& d : devices)
    if (std::find(all.begin(), all.end(), d) == all.end()) all.push_back(d);
  for (const auto& d : all) states_.emplace_back(device_of(d), state_of(device_of(d)));
  portable_ = PortableRandom::position();
}

void RandomState::restore() const { put_back(states_, portable_); }

RandomState::Scope::Scope(const RandomState& state) : portable_before_(PortableRandom::position()) {
  PortableRandom::set_position(state.portable_);
  for (const auto& [device, values] : state.states_) {
    before_.emplace_back(device, state_of(device));
    set_state(device, values);
  }
}

RandomState::Scope::~Scope() { put_back(before_, portable_before_); }

}  // namespace npu_train

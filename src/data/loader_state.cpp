#include <utility>

#include "data/loader_impl.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"

namespace npu_train {
namespace {

std::string order_digest(const std::vector<int64_t>& order) { return hex64(hash64(order.data(), order.size() * sizeof(int64_t))); }

}  // namespace

State Loader::state() const {
  const auto& self = *impl_;
  State out;
  out.values["seed"] = static_cast<int64_t>(self.seed);
  out.values["epoch"] = self.epoch;
  out.values["cursor"] = self.cursor;
  out.values["batch_size"] = self.options.batch_size;
  out.values["world_size"] = self.options.world_size;
  if (self.dataset != nullptr) {
    out.values["samples"] = self.dataset->size();
    out.values["order"] = order_digest(self.order_of(self.epoch));
  } else {
    for (const auto& [key, value] : self.stream_state.values) out.values["stream/" + key] = value;
    for (const auto& [key, value] : self.stream_state.tensors) out.tensors["stream/" + key] = value;
  }
  return out;
}

void Loader::load_state(const State& state) {
  auto& self = *impl_;
  const char* const part = "data loader";
  const auto seed = static_cast<uint64_t>(state.integer("seed", part));
  const int64_t epoch = state.integer("epoch", part), cursor = state.integer("cursor", part);
  const int64_t batch_size = state.integer("batch_size", part), world_size = state.integer("world_size", part);
  check(epoch >= 0 && cursor >= 0, ErrorKind::Checkpoint, part, "the state is at epoch ", epoch, ", batch ", cursor);
  check(cursor == 0 || (batch_size == self.options.batch_size && world_size == self.options.world_size), ErrorKind::Checkpoint, part,
        "the state is inside an epoch, with batches of ", batch_size, " on ", world_size, " ranks; this run has batches of ",
        self.options.batch_size, " on ", self.options.world_size,
        " ranks; hint: resume with the same numbers, or from the end of an epoch");
  State of_stream;
  if (self.dataset != nullptr && cursor > 0) {  // between epochs other data may follow
    const int64_t samples = state.integer("samples", part);
    check(samples == self.dataset->size(), ErrorKind::Checkpoint, part, "the state belongs to a data set with ", samples,
          " samples; this one has ", self.dataset->size());
    const uint64_t before = std::exchange(self.seed, seed);
    const std::string here = order_digest(self.order_of(epoch));
    self.seed = before;
    check(here == state.text("order", part), ErrorKind::Checkpoint, part, "the order of the samples in epoch ", epoch,
          " differs from the one in the state; hint: data.shuffle must be unchanged");
  } else if (self.dataset == nullptr) {
    const std::string prefix = "stream/";
    for (const auto& [key, value] : state.values) {
      if (key.starts_with(prefix)) of_stream.values[key.substr(prefix.size())] = value;
    }
    for (const auto& [key, value] : state.tensors) {
      if (key.starts_with(prefix)) of_stream.tensors[key.substr(prefix.size())] = value;
    }
  }
  self.seed = seed;
  self.epoch = epoch;
  self.cursor = cursor;
  self.stream_state = std::move(of_stream);
  self.loaded = true;
  self.begun = false;
}

}  // namespace npu_train

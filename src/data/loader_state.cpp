#include <string_view>
#include <utility>

#include "data/loader_impl.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"

namespace npu_train {
namespace {

constexpr const char* kPart = "data loader";
constexpr std::string_view kStream = "stream/";

// The state of a stream has the rank and world size of its reader; states of other data have neither. States of earlier versions have only
// world_size. Their cursor counts the batches of one rank; it equals the number over all ranks only if there was one rank.
int64_t world_size_of(const State& state) { return state.values.count("world_size") > 0 ? state.integer("world_size", kPart) : 1; }
int64_t rank_of(const State& state) { return state.values.count("rank") > 0 ? state.integer("rank", kPart) : 0; }

State stream_part(const State& state) {
  State out;
  for (const auto& [key, value] : state.values)
    if (key.starts_with(kStream)) out.values[key.substr(kStream.size())] = value;
  for (const auto& [key, value] : state.tensors)
    if (key.starts_with(kStream)) out.tensors[key.substr(kStream.size())] = value;
  return out;
}

std::string order_digest(const std::vector<int64_t>& order) { return hex64(hash64(order.data(), order.size() * sizeof(int64_t))); }

/// Error(Checkpoint) unless `sampler` has the order that the state was saved with.
void check_order(const State& state, int64_t epoch, const DistributedSampler& sampler) {
  const int64_t samples = state.integer("samples", kPart);
  check(samples == sampler.options().size, ErrorKind::Checkpoint, kPart, "the state belongs to a data set with ", samples,
        " samples; this one has ", sampler.options().size);
  check(order_digest(sampler.order(epoch)) == state.text("order", kPart), ErrorKind::Checkpoint, kPart,
        "the order of the samples in epoch ", epoch,
        " differs from the one in the state; hint: data.shuffle, data.sampler and the numbers in data.sampler_file must be unchanged");
}

}  // namespace

State Loader::state() const {
  const auto& self = *impl_;
  State out;
  out.values["seed"] = static_cast<int64_t>(self.seed);
  out.values["epoch"] = self.epoch;
  out.values["cursor"] = self.cursor;
  out.values["batch_size"] = self.options.batch_size;
  if (self.dataset != nullptr) {
    out.values["samples"] = self.dataset->size();
    out.values["order"] = order_digest(self.sampler_of(self.seed).order(self.epoch));
  } else {
    out.values["rank"] = self.options.rank;  // rank that read the stream
    out.values["world_size"] = self.options.world_size;
    for (const auto& [key, value] : self.stream_state.values) out.values[std::string(kStream) + key] = value;
    for (const auto& [key, value] : self.stream_state.tensors) out.tensors[std::string(kStream) + key] = value;
  }
  return out;
}

void Loader::load_state(const State& state) {
  auto& self = *impl_;
  const auto seed = static_cast<uint64_t>(state.integer("seed", kPart));
  const int64_t epoch = state.integer("epoch", kPart), cursor = state.integer("cursor", kPart);
  const int64_t batch_size = state.integer("batch_size", kPart);
  check(epoch >= 0 && cursor >= 0, ErrorKind::Checkpoint, kPart, "the state is at epoch ", epoch, ", batch ", cursor);
  if (cursor > 0) {  // between epochs, the data may change
    check(batch_size == self.options.batch_size, ErrorKind::Checkpoint, kPart, "the state is inside an epoch, with batches of ", batch_size,
          "; this run has batches of ", self.options.batch_size,
          "; hint: resume with the same data.batch_size, or from the end of an epoch");
    check(state.values.count("rank") > 0 || world_size_of(state) == 1, ErrorKind::Checkpoint, kPart,
          "the state is inside an epoch of an earlier version on ", world_size_of(state),
          " ranks, which shared the samples in another way; hint: resume from the end of an epoch");
  }
  State of_stream;
  if (self.dataset == nullptr)
    of_stream = stream_part(state);
  else if (cursor > 0)
    check_order(state, epoch, self.sampler_of(seed));
  self.seed = seed;
  self.epoch = epoch;
  self.cursor = cursor;
  self.stream_state = std::move(of_stream);
  // Another rank's stream is at another sample, so its state provides only the position.
  self.loaded = rank_of(state) == self.options.rank && world_size_of(state) == self.options.world_size;
  self.loaded_ranks = world_size_of(state);
  self.begun = false;
}

}  // namespace npu_train

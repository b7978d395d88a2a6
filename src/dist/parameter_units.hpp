// Parameters in shards: brought unit by unit for the forward and the backward pass, and released in between.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dist/flat_layout.hpp"
#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/parameter_unit.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

// The unit of each parameter, from 1; 0: none, the root. Error(Usage) for a parameter in two units.
std::vector<size_t> unit_of_each(const ParameterSet& parameters, const std::vector<ParameterUnit>& units);

// Every pass brings every unit in one order, whatever it computes: forward from the first unit to the last, backward from the last to the
// first. So ranks agree without a word, and one that has no samples takes part by bringing and releasing.
class ParameterUnits {
 public:
  struct Options {
    bool between_devices = false;  // without a copy in host memory
    bool ahead = true;             // the next unit is on its way while one computes
  };

  // The parameters become views of flat storage and give their memory up, also masters and what is computed with in their place. `layout`
  // and `unit_of` as unit_layout() has them: unit 0 is the root, `names` are those of the others, from 1. All but the parameters' own
  // tensors must outlive this object.
  ParameterUnits(const ParameterSet& parameters, const std::vector<size_t>& unit_of, std::vector<std::string> names,
                 std::vector<const FlatBucket*> layout, ProcessGroup& group, Options options);

  // The slice of a piece of a bucket that is on this rank, in memory of its own.
  Parameter own(size_t bucket, size_t piece) const;

  // A forward pass begins, and with `backward` a backward pass will follow: then the last unit is kept in between.
  void begin_pass(bool backward);
  // forward(x) with the parameters of a unit (from 0, without the root), and the hook that brings them again for the backward pass.
  at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x);
  // Units of the order that did not run in this pass are brought and released.
  void end_pass();
  // A pass of a rank that computes nothing.
  void idle_pass(bool backward);
  // end_pass(), and the root is released.
  void end();
  // Every parameter is complete, and stays so when this object is gone.
  void bring_all();

  struct Traffic {
    double waited = 0;  // seconds
    int64_t bytes = 0;  // sent to others
  };
  // Since the last call.
  Traffic take_traffic() { return std::exchange(traffic_, {}); }

 private:
  struct Storage {
    const FlatBucket* layout;
    at::Tensor flat;   // all of it, as the model computes with it; without memory while the unit is away
    at::Tensor shard;  // this rank's part, which the optimizer updates: of masters, in fp32
    at::Tensor staged;
    std::unique_ptr<Collective> gather;
    std::vector<at::Tensor> hidden{};  // what the parameters of its pieces are while the unit is away
  };
  enum class Place { Away, Coming, Here };
  struct Unit {
    std::string name;
    std::vector<size_t> storages{};
    Place place = Place::Here;
  };
  enum class Direction { None, Forward, Backward };

  size_t blocks() const { return units_.size() - 1; }
  size_t in_order() const;
  size_t unit_at(size_t position) const;
  void send(size_t unit);
  void send_up_to(size_t position);
  void bring(size_t unit);
  void release(size_t unit);
  void show(const Storage& storage);
  void hide(const Storage& storage);
  static size_t bytes_of(const Storage& storage);
  bool is_shared(const Storage& storage, size_t unit) const;
  void fill(Storage& storage, size_t unit);
  void finish_direction();
  void turn_to_backward();
  void enter_backward(size_t unit);
  void bring_for_backward(size_t unit);

  const ParameterSet& parameters_;
  ProcessGroup& group_;
  Options options_;
  std::vector<Unit> units_;
  std::vector<Storage> storages_;
  std::mutex mutex_;  // hooks come from autograd's threads
  Direction direction_ = Direction::None;
  bool backward_follows_ = false;
  size_t sent_ = 0;  // units of this direction that are on their way, or were
  Traffic traffic_;

  // Memory that units leave to each other, in pieces of the size of the largest.
  size_t piece_bytes_ = 0;
  std::vector<c10::DataPtr> free_;
};

}  // namespace npu_train::detail

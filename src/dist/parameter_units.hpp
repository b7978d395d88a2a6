// Sharded parameters: gathered unit by unit for the forward and the backward pass, and released in between.
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
#include "npu_train/dist/process_group.hpp"
#include "npu_train/dist/strategy.hpp"

namespace npu_train::detail {

// Returns the unit of each parameter, counted from 1; 0 for a parameter in no unit, which belongs to the root. Error(Usage) for a parameter
// in two units.
std::vector<size_t> unit_of_each(const ParameterSet& parameters, const std::vector<ParameterUnit>& units);

// Every pass gathers every unit in one order, independent of the computation: forward from the first unit to the last, backward from the
// last to the first. So ranks need no agreement, and a rank without samples takes part by gathering and releasing.
class ParameterUnits {
 public:
  struct Options {
    bool between_devices = false;  // gathers without a copy in host memory
    bool ahead = true;             // gathers the next unit while one computes
  };

  // Moves the parameters to flat storage and frees their memory, including masters and the tensors that the model computes with. `layout`
  // is the result of unit_layout(), and `unit_of` its argument. Unit 0 is the root; `names` are the names of the other units, from unit 1
  // on. All arguments must outlive this object, except the tensors of the parameters.
  ParameterUnits(const ParameterSet& parameters, const std::vector<size_t>& unit_of, std::vector<std::string> names,
                 std::vector<const FlatBucket*> layout, ProcessGroup& group, Options options);

  // Returns this rank's slice of a piece of a bucket, in memory of its own.
  Parameter own(size_t bucket, size_t piece) const;

  // Begins a forward pass. `backward`: a backward pass follows, and the last unit stays complete between the two passes.
  void begin_pass(bool backward);
  // Runs forward(x) with the parameters of a unit; units are counted from 0, without the root. Sets a hook that gathers these parameters
  // for the backward pass.
  at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x);
  // Ends the pass: gathers and releases the units that did not run in it.
  void end_pass();
  // Takes part in a pass without computing.
  void idle_pass(bool backward);
  // Calls end_pass(), and releases the root.
  void end();
  // Makes every parameter complete. The parameters stay complete after this object is destroyed.
  void unshard_all();

  struct Traffic {
    double waited = 0;  // seconds
    int64_t bytes = 0;  // sent to others
  };
  // Returns the traffic since the last call.
  Traffic take_traffic() { return std::exchange(traffic_, {}); }

 private:
  struct Storage {
    const FlatBucket* layout;
    at::Tensor flat;   // all elements, in the dtype that the model computes with; without memory while the unit is released
    at::Tensor shard;  // this rank's part, which the optimizer updates; in fp32 if there are masters
    at::Tensor staged;
    std::unique_ptr<Collective> gather;
    std::vector<at::Tensor> hidden{};  // tensors without memory that replace the parameters while the unit is released
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
  void unshard_for_backward(size_t unit);

  const ParameterSet& parameters_;
  ProcessGroup& group_;
  Options options_;
  std::vector<Unit> units_;
  std::vector<Storage> storages_;
  std::mutex mutex_;  // hooks run in autograd's threads
  Direction direction_ = Direction::None;
  bool backward_follows_ = false;
  size_t sent_ = 0;  // number of units that this pass has sent
  Traffic traffic_;

  // Memory that units share, in pieces of the size of the largest bucket.
  size_t piece_bytes_ = 0;
  std::vector<c10::DataPtr> free_;
};

}  // namespace npu_train::detail

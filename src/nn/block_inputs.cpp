#include "npu_train/nn/block_inputs.hpp"

#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

thread_local std::shared_ptr<Batch> inputs_of_blocks;
thread_local BlockInputs* receiver_of_outputs = nullptr;  // nullptr during a recomputation

}  // namespace

BlockInputs::BlockInputs(const Batch& batch)
    : before_(std::exchange(inputs_of_blocks, std::make_shared<Batch>(batch))), outer_(std::exchange(receiver_of_outputs, this)) {}
BlockInputs::~BlockInputs() {
  inputs_of_blocks = std::move(before_);
  receiver_of_outputs = outer_;
}

at::Tensor BlockInputs::get(const std::string& name) {
  return inputs_of_blocks != nullptr && inputs_of_blocks->has(name) ? inputs_of_blocks->at(name) : at::Tensor();
}

void BlockInputs::put(const std::string& name, at::Tensor value) {
  check(inputs_of_blocks != nullptr, ErrorKind::Usage, "BlockInputs", "'", name,
        "' is put outside of a scope; hint: call the model's forward, or make a BlockInputs around its blocks");
  inputs_of_blocks->set(name, std::move(value));
}

void BlockInputs::give(const std::string& name, at::Tensor value) {
  check(inputs_of_blocks != nullptr, ErrorKind::Usage, "BlockInputs", "'", name,
        "' is given outside of a scope; hint: call the model's forward, or make a BlockInputs around its blocks");
  if (receiver_of_outputs != nullptr) receiver_of_outputs->given_.emplace_back(name, std::move(value));
}

BlockInputs::State::State() : batch_(inputs_of_blocks) {}
BlockInputs::State::Scope::Scope(const State& state)
    : before_(std::exchange(inputs_of_blocks, state.batch_)), receiver_(std::exchange(receiver_of_outputs, nullptr)) {}
BlockInputs::State::Scope::~Scope() {
  inputs_of_blocks = std::move(before_);
  receiver_of_outputs = receiver_;
}

}  // namespace npu_train

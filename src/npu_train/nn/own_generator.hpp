/// Host random numbers of one run. libtorch's default CPU generator belongs to the process: models that several threads create at once
/// would share it, and their weights would depend on timing.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>

namespace npu_train {

/// In its scope, CPU random numbers of this thread come from `generator`. This covers operators with an optional generator argument
/// (uniform_, normal_, bernoulli_ ..., which initialise the weights of libtorch's modules), rand, randn, randint and randperm, and
/// init.hpp. Other operators (rand_like, dropout) and other devices use their default generators. The Trainer creates its model in such a
/// scope.
class OwnGenerator {
 public:
  explicit OwnGenerator(at::Generator generator);
  ~OwnGenerator();
  OwnGenerator(const OwnGenerator&) = delete;
  OwnGenerator& operator=(const OwnGenerator&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns the generator of this thread's OwnGenerator, or libtorch's default CPU generator.
at::Generator host_generator();

}  // namespace npu_train

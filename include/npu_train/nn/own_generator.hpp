/// Random numbers of the host that belong to one run. libtorch's default generator of the CPU is the process's: models that are made in
/// several threads at once would share its numbers, and get weights that depend on timing.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>

namespace npu_train {

/// While it lives, the random numbers of this thread on the CPU come from `generator`: operators that accept a generator and were given
/// none (uniform_, normal_, bernoulli_ ...: the initial weights of libtorch's modules), rand, randn, randint and randperm, and init.hpp.
/// Others (rand_like, dropout) and other devices draw from their default generators as usual. The Trainer makes its model inside one.
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

/// The generator of this thread's OwnGenerator, or libtorch's default one for the CPU.
at::Generator host_generator();

}  // namespace npu_train

/// The inputs that a model accepts, so that tools can make batches for it without knowing its purpose.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"

namespace npu_train {

/// One size of an input.
struct Extent {
  Extent(int64_t size) : size(size) {}                                               // NOLINT: {"batch", 3, 224}
  Extent(std::string name, int64_t size = 0) : size(size), name(std::move(name)) {}  // NOLINT
  Extent(const char* name, int64_t size = 0) : Extent(std::string(name), size) {}    // NOLINT

  int64_t size = 0;    ///< the only size that is accepted; of a free one the usual size, 0 if there is none
  std::string name{};  ///< of a free size ("batch", "height", "tokens"); empty if the size is fixed
  bool free() const { return !name.empty(); }
};

/// One input of a model.
struct InputSpec {
  std::string name = "input";  ///< of the field in the Batch
  at::ScalarType dtype = at::kFloat;
  std::vector<Extent> shape{};  ///< the first one is usually the free size "batch"
  /// Smallest and largest value; the largest is excluded for integers, whose range must be given (token ids: {0, vocabulary}).
  std::optional<std::pair<double, double>> range{};

  /// The fixed or usual size of the extent `name`; nothing if there is no such free size or it has no usual one.
  std::optional<int64_t> usual(const std::string& name) const;
  /// "float32 [batch, 3, height (224), width (224)]"
  std::string str() const;
};

/// Images [batch, channels, height, width] of usually `side` pixels (0: any), or exactly `side` if `fixed`.
InputSpec image_input(int64_t channels, int64_t side, bool fixed = false);

struct ExampleOptions {
  int64_t samples = 1;                       ///< the size "batch"
  std::map<std::string, int64_t> sizes{};    ///< other free sizes by name; those that are absent take the usual size
  bool zeros = false;                        ///< or the allowed integers nearest to 0; false: random, standard normal without a range
  std::optional<at::Generator> generator{};  ///< nothing: that of the process
};

/// A batch of these inputs on the CPU. Error(Usage) without inputs, for a free size that is neither given nor usual, for a size that the
/// model does not accept, and for integers without a range.
Batch example_batch(const std::vector<InputSpec>& inputs, const ExampleOptions& options = {});

}  // namespace npu_train

/// The inputs that a model accepts. Tools create batches from them without knowing the purpose of the model.
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

/// One dimension of an input.
struct Extent {
  Extent(int64_t fixed) : size(fixed) {}                                                     // NOLINT: {"batch", 3, 224}
  Extent(std::string of_name, int64_t usual = 0) : size(usual), name(std::move(of_name)) {}  // NOLINT
  Extent(const char* of_name, int64_t usual = 0) : Extent(std::string(of_name), usual) {}    // NOLINT

  int64_t size = 0;    ///< fixed size: the only accepted value; free size: its usual value, 0 if it has none
  std::string name{};  ///< name of a free size ("batch", "height", "tokens"); empty if the size is fixed
  bool free() const { return !name.empty(); }
};

/// One input of a model.
struct InputSpec {
  std::string name = "input";  ///< name of the field in the Batch
  at::ScalarType dtype = at::kFloat;
  std::vector<Extent> shape{};  ///< first dimension: usually the free size "batch"
  /// Limits of the values. Required for integers, which stay below the upper limit (token ids: {0, vocabulary}).
  std::optional<std::pair<double, double>> range{};

  /// Returns the usual size of the free dimension `name`; nullopt if it does not exist or has no usual size.
  std::optional<int64_t> usual(const std::string& name) const;
  /// Returns a text such as "float32 [batch, 3, height (224), width (224)]".
  std::string str() const;
};

/// Describes images [batch, channels, height, width]. `side` is their usual height and width (0: no usual size), or with `fixed` the only
/// size that is accepted.
InputSpec image_input(int64_t channels, int64_t side, bool fixed = false);

struct ExampleOptions {
  int64_t samples = 1;                     ///< size of the dimension "batch"
  std::map<std::string, int64_t> sizes{};  ///< other free sizes by name; by default their usual values
  bool zeros = false;  ///< true: zeros, or the allowed integers nearest to 0; false: random in `range`, or standard normal without a range
  std::optional<at::Generator> generator{};  ///< source of random values; default: the global generator
};

/// Creates a batch of these inputs on the CPU. Error(Usage) if `inputs` is empty, if a free size has neither a given nor a usual value, if
/// the model does not accept a given size, and if integers have no range.
Batch example_batch(const std::vector<InputSpec>& inputs, const ExampleOptions& options = {});

}  // namespace npu_train

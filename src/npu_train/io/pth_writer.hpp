/// Writes dicts of tensors as Python's `torch.save` does, without Python.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/io/file.hpp"
#include "npu_train/io/safetensors.hpp"

namespace npu_train {

/// A Python value to save: None, a bool, a number, a text, a tensor, or a list, tuple or dict of these.
class PthValue {
 public:
  enum class Kind { None, Boolean, Integer, Number, Text, Tensor, List, Tuple, Dict };

  PthValue() = default;
  PthValue(bool value) : kind_(Kind::Boolean), integer_(value ? 1 : 0) {}
  PthValue(int value) : PthValue(int64_t{value}) {}
  PthValue(int64_t value) : kind_(Kind::Integer), integer_(value) {}
  PthValue(double value) : kind_(Kind::Number), number_(value) {}
  PthValue(const char* text) : PthValue(std::string(text)) {}
  PthValue(std::string text) : kind_(Kind::Text), text_(std::move(text)) {}
  PthValue(at::Tensor tensor) : kind_(Kind::Tensor), tensor_(std::move(tensor)) {}

  static PthValue list(std::vector<PthValue> items = {}) { return {Kind::List, std::move(items)}; }
  static PthValue tuple(std::vector<PthValue> items = {}) { return {Kind::Tuple, std::move(items)}; }
  static PthValue dict() { return {Kind::Dict, {}}; }
  /// Creates a state_dict.
  static PthValue dict(const NamedTensors& tensors);

  /// Appends to a list or a tuple.
  PthValue& append(PthValue item);
  /// Adds an entry to a dict; the order is kept. Keys are texts or integers and must differ.
  PthValue& set(PthValue key, PthValue value);

  Kind kind() const { return kind_; }
  int64_t integer() const { return integer_; }
  double number() const { return number_; }
  const std::string& text() const { return text_; }
  const at::Tensor& tensor() const { return tensor_; }
  /// Returns the items of a list or tuple, or alternating keys and values of a dict.
  const std::vector<PthValue>& items() const { return items_; }

 private:
  PthValue(Kind kind, std::vector<PthValue> items) : kind_(kind), items_(std::move(items)) {}

  Kind kind_ = Kind::None;
  int64_t integer_ = 0;
  double number_ = 0;
  std::string text_;
  at::Tensor tensor_;
  std::vector<PthValue> items_;
};

/// Writes a value as `torch.save(value, path)` does, for `torch.load(path, weights_only=True)`. Tensors are row-major, without gradients,
/// each with its own storage. Equal values give equal files. Error(Usage) for a tensor whose dtype save_pt does not write or whose data are
/// not dense, and for a key that is neither a text nor an integer; Error(Checkpoint) if the file cannot be written.
WrittenFile save_pth(const std::filesystem::path& path, const PthValue& value, Durability durability = Durability::Synced);

}  // namespace npu_train

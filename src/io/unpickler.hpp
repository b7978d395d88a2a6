/// The harmless part of Python's pickle machine: builds values, calls nothing.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {

/// A tensor as the pickle describes it; nothing in it is checked against its storage yet.
struct PickledTensor {
  at::ScalarType dtype = at::kFloat;
  std::string key;           // entry of the archive
  int64_t storage_size = 0;  // in elements
  int64_t offset = 0;
  std::vector<int64_t> size;
  std::vector<int64_t> stride;
};

/// One value. All values belong to the Unpickler; pointers between them may form cycles.
struct PickleValue {
  enum class Kind { None, Boolean, Integer, Number, Text, Bytes, Tuple, List, Dict, Global, Storage, Tensor, Mark };
  Kind kind = Kind::None;
  int64_t integer = 0;
  double number = 0;
  std::string text;                                         // Text, Bytes; Global: "module name"
  std::vector<PickleValue*> items;                          // Tuple, List
  std::vector<std::pair<PickleValue*, PickleValue*>> dict;  // Dict
  std::optional<PickledTensor> tensor;                      // Storage (dtype, key and size only), Tensor
};

class Unpickler {
 public:
  /// `source` stands in messages. Runs the whole pickle. Error(`kind`) for everything that is not on the list.
  Unpickler(std::string_view bytes, std::string source, ErrorKind kind);
  /// The value that the pickle leaves.
  const PickleValue& result() const { return *result_; }

 private:
  using Kind = PickleValue::Kind;

  template <class... Parts>
  void require(bool ok, const Parts&... parts) const;
  void run();
  bool step_constant(unsigned char op);
  bool step_container(unsigned char op);
  bool step_memo(unsigned char op);
  void step_call(unsigned char op);

  std::string_view take(uint64_t bytes);
  template <class T>
  T take_number();
  std::string_view take_line();
  PickleValue* make(Kind kind);
  void push(PickleValue* value) { stack_.push_back(value); }
  void push_integer(int64_t value);
  void push_text(Kind kind, uint64_t bytes);
  PickleValue* pop();
  PickleValue* top() const;
  std::vector<PickleValue*> pop_to_mark();
  void push_tuple(std::vector<PickleValue*> items);
  void set_items(PickleValue* dict, const std::vector<PickleValue*>& flat) const;
  void push_global(const std::string& module, const std::string& name);
  PickleValue* call(const PickleValue& function, const PickleValue& arguments);
  PickleValue* rebuild_tensor(const PickleValue& arguments, bool from_npu);
  PickleValue* load_storage(const PickleValue& id);
  std::vector<int64_t> integers(const PickleValue& value, const char* what) const;

  std::string_view bytes_;  // empty once the pickle has run
  std::string source_;
  ErrorKind kind_;
  size_t at_ = 0;
  size_t dimensions_ = 0;  // of all tensors
  std::deque<PickleValue> values_;
  std::vector<PickleValue*> stack_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
  PickleValue* result_ = nullptr;
};

}  // namespace npu_train::detail

/// The harmless part of Python's pickle machine: it builds values and calls nothing.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {

/// A tensor as the pickle describes it, not yet checked against its storage.
struct PickledTensor {
  at::ScalarType dtype = at::kFloat;
  std::string_view key;      // entry in the archive
  int64_t storage_size = 0;  // number of elements
  int64_t offset = 0;
  std::vector<int64_t> size;
  std::vector<int64_t> stride;
};

/// One value. All values belong to the Unpickler; pointers between them may form cycles. It is small, because each byte of a pickle may
/// create one.
struct PickleValue {
  /// Kinds of values. Other: data that are never needed (floats, bytes, dates, paths, NumPy's scalars).
  enum class Kind : unsigned char { None, Boolean, Integer, Text, Tuple, List, Dict, Global, Storage, Tensor, Mark, Other };
  Kind kind = Kind::None;
  bool has_attributes = false;            // Dict: represents an object, whose attributes are its items
  int64_t integer = 0;                    // Integer, Boolean
  std::string_view text;                  // Text; Global: "module name"
  std::vector<PickleValue*> items;        // Tuple, List; Dict: keys and values, alternating
  std::unique_ptr<PickledTensor> tensor;  // Storage (dtype, key and size only), Tensor
};

class Unpickler {
 public:
  /// Runs the complete pickle. `source` is used in messages. Error(`kind`) for everything that is not supported.
  Unpickler(std::string bytes, std::string source, ErrorKind kind);
  Unpickler(const Unpickler&) = delete;  // values point to each other and into the bytes
  Unpickler& operator=(const Unpickler&) = delete;
  /// The final value of the pickle.
  const PickleValue& result() const { return *result_; }
  /// Returns the size of this pickle in bytes; others may follow it.
  size_t size() const { return at_; }
  /// Returns the storages that the pickle requests, by key. If a key has two descriptions, either one is returned.
  std::unordered_map<std::string, const PickledTensor*> storages() const;

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
  void push_text(uint64_t bytes);
  void push_other(uint64_t bytes);
  void push_long(uint64_t bytes);
  PickleValue* pop();
  PickleValue* top() const;
  std::vector<PickleValue*> pop_to_mark();
  void push_tuple(const std::vector<PickleValue*>& items);
  void put_items(PickleValue* into, const std::vector<PickleValue*>& items);
  void append(PickleValue* list, const std::vector<PickleValue*>& items);
  void set_items(PickleValue* dict, const std::vector<PickleValue*>& flat);
  void set_state(PickleValue* object, const PickleValue& state);
  void push_global(std::string_view module, std::string_view name);
  PickleValue* call(const PickleValue& function, const PickleValue& arguments);
  PickleValue* dict_of_pairs(const PickleValue& pairs, std::string_view name);
  PickleValue* plain_object(std::string_view name, const PickleValue& arguments);
  PickleValue* rebuild_tensor(const PickleValue& arguments, bool from_npu);
  static bool has_only_npu_metadata(const PickleValue& dict);
  PickleValue* load_storage(const PickleValue& id);
  PickleValue* make_storage(const PickleValue& id);
  std::vector<int64_t> integers(const PickleValue& value, const char* what) const;

  std::string bytes_;
  std::string source_;
  ErrorKind kind_;
  size_t at_ = 0;
  size_t dimensions_ = 0;  // number of dimensions of all tensors
  size_t references_ = 0;  // number of entries of all lists, tuples and dicts
  std::deque<PickleValue> values_;
  PickleValue none_, false_, true_;
  std::unordered_set<std::string> globals_;
  std::unordered_map<const PickleValue*, PickleValue*> storages_;  // storages by their persistent id
  std::vector<PickleValue*> stack_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
  PickleValue* result_ = nullptr;
};

}  // namespace npu_train::detail

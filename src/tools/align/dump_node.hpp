// The dump of one call as a tree, before it becomes JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/tools/align/statistics.hpp"

namespace npu_train::detail {

struct DumpLeaf {
  std::string type;   // "torch.Tensor", "int" ...
  std::string value;  // JSON, for an item that is not a tensor
  std::string dtype;  // "torch.float32"
  std::vector<int64_t> shape;
  bool requires_grad = false;
  std::string parameter;  // name of the parameter, if this is a parameter that an operator receives as an input
  std::optional<TensorStatistics> statistics;
  std::optional<uint32_t> crc;
  std::string data_name;
  std::string phase;    // phase of a named value after the forward pass: backward | update
  int64_t sampled = 0;  // number of elements in the file, if they are only a sample
};

// A tree in msprobe's format: null, leaf, list or map.
struct DumpNode {
  enum class Kind { Null, Leaf, List, Map };
  Kind kind = Kind::Null;
  std::shared_ptr<DumpLeaf> leaf;  // shared: the statistics of a device tensor are filled in later
  struct Item;
  std::vector<Item> items;

  // Defined below: a vector of the incomplete type Item may be declared but not constructed.
  static DumpNode of(DumpLeaf leaf);
  static DumpNode list();
  static DumpNode map();
  void add(DumpNode node);
  void set(const std::string& key, DumpNode node);
};

struct DumpNode::Item {
  std::string first;  // key of a map
  DumpNode second;
};

inline DumpNode DumpNode::of(DumpLeaf leaf) { return {Kind::Leaf, std::make_shared<DumpLeaf>(std::move(leaf)), {}}; }
inline DumpNode DumpNode::list() { return {Kind::List, nullptr, {}}; }
inline DumpNode DumpNode::map() { return {Kind::Map, nullptr, {}}; }
inline void DumpNode::add(DumpNode node) { items.push_back({std::string(), std::move(node)}); }
inline void DumpNode::set(const std::string& key, DumpNode node) { items.push_back({key, std::move(node)}); }

struct DumpEntry {
  std::string name{};    // "Module.conv1.Conv2d.forward.0"
  std::string parent{};  // name of the enclosing call; "" at the top
  std::string stack{};   // the place where it was called
  DumpNode content = DumpNode::map();
};

std::string to_json(const DumpNode& node);
std::string json_string(const std::string& text);
// Returns a number as Python's module json writes it; non-finite numbers are NaN, Infinity and -Infinity.
std::string json_number(double value);

}  // namespace npu_train::detail

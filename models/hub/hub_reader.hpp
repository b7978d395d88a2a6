// Reads the config.json of Hugging Face, key by key, into the options of a network of this library.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "npu_train/models/hub_network.hpp"

namespace npu_train::detail {

inline constexpr const char* kHubFile = "config.json";  // begins errors

// Each call names a key, and what transformers takes where the file does not have it. finish() reports the keys that no call named.
class HubReader {
 public:
  // `section` is a key of an object of `config`; "": config itself.
  HubReader(const Json& config, HubNetwork& network, const std::string& section = "");

  // The value itself; nullopt for null and for values of another type.
  std::optional<double> number(const std::string& key, std::optional<double> standard);
  std::string text(const std::string& key, const std::string& standard);
  // Whether the file has the key, with a value that is not null.
  bool has(const std::string& key) const;
  // An object under the key; nullptr if there is none.
  const Json* object(const std::string& key);

  // A size, which follows from the shapes of the tensors: without the key nothing is compared. `zero`: the meaning of a 0 of our option.
  int64_t size(const std::string& key, int64_t standard, const std::string& option, double zero = 0);
  // A number of heads, which the shapes of the tensors do not show, but which belongs to the size of a network. Returns it.
  double heads(const std::string& key, int64_t standard, const std::string& option = "heads");
  // The tokens of the longest input, of a network whose tensors do not limit it.
  void longest(const std::string& key, int64_t standard, const std::string& option);
  // A number that changes the arithmetic.
  void number(const std::string& key, double standard, const std::string& option);
  void flag(const std::string& key, bool standard, const std::string& option);
  void activation(const std::string& key, const std::string& standard, const std::string& option = "activation");
  // Any value: the option is set unless the user or the data do it.
  void open(const std::string& key, const std::string& option, const ConfigNode& value);
  // An option that follows from several keys; `theirs` is the text of the key's value.
  void set(const std::string& key, const std::string& theirs, const std::string& option, const ConfigNode& value, bool size = false,
           double zero = 0);

  // A property that our network has by itself: other values are foreign. A missing key and null have it too.
  void must_be(const std::string& key, const Json& ours);
  // Names of classes of transformers, whose tensors ours has.
  void architectures(const std::set<std::string>& known);
  bool has_architecture(const std::string& name) const;
  // The number of classes, for files of one of these classes of transformers, which have a head.
  void classes(const std::set<std::string>& classifiers);
  // Keys that do not change the outputs.
  void unused(const std::set<std::string>& keys) { read_.insert(keys.begin(), keys.end()); }
  // "KEY is VALUE, this network has OURS".
  void foreign(const std::string& key, const std::string& value, const std::string& ours);
  // Every other key with a value is foreign, unless all networks of transformers may have it and ours computes the same.
  void finish();

 private:
  // The classes of the head: those of id2label, or num_labels, or 2.
  int64_t labels() const;
  std::optional<Json> value(const std::string& key);
  void add(const std::string& key, const std::string& theirs, const std::string& option, const ConfigNode& value, HubOption::Rule rule,
           bool size, double zero);

  HubNetwork& network_;
  Json object_;
  std::string prefix_;  // "vision_config."
  std::set<std::string> read_;
};

// The text of a value in messages: 1e-05, relu, [3, 4, 6, 3].
std::string hub_text(const Json& value);
// A number as the value of an option: without a point if it has no fraction.
ConfigNode hub_number(double value);

}  // namespace npu_train::detail

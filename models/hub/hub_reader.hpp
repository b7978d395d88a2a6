// Reads Hugging Face's config.json, key by key, into options of a network of this library.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "npu_train/models/hub_network.hpp"

namespace npu_train::detail {

inline constexpr const char* kHubFile = "config.json";  // prefix of error messages

// Reads a config.json. Each function reads a key, with transformers' default for files without it. finish() reports the keys that no
// function has read.
class HubReader {
 public:
  // `section` is the key of an object in `config`; "": config itself.
  HubReader(const Json& config, HubNetwork& network, const std::string& section = "");

  // Return the value, or `standard` if the file lacks the key. If the value is null or has another type, number() returns nullopt, and
  // text() returns `standard`.
  std::optional<double> number(const std::string& key, std::optional<double> standard);
  std::string text(const std::string& key, const std::string& standard);
  // Returns whether the file has the key with a value other than null.
  bool has(const std::string& key) const;
  // Returns the object under the key, or nullptr.
  const Json* object(const std::string& key);

  // Reads a size that the shapes of the tensors determine, so a missing key is not compared. `zero`: the size that 0 means in our option.
  int64_t size(const std::string& key, int64_t standard, const std::string& option, double zero = 0);
  // Reads and returns a number of heads. The shapes do not determine it, but a named size includes it.
  double heads(const std::string& key, int64_t standard, const std::string& option = "heads");
  // Reads the limit on input tokens, for a network whose tensors do not limit it.
  void longest(const std::string& key, int64_t standard, const std::string& option);
  // Read a value that changes the computation.
  void number(const std::string& key, double standard, const std::string& option);
  void flag(const std::string& key, bool standard, const std::string& option);
  void activation(const std::string& key, const std::string& standard, const std::string& option = "activation");
  // Reads a key that may have any value: it sets the option unless the user or the data set it.
  void open(const std::string& key, const std::string& option, const ConfigNode& value);
  // Sets an option that follows from several keys. `theirs` is the value of the key as text.
  void set(const std::string& key, const std::string& theirs, const std::string& option, const ConfigNode& value, bool size = false,
           double zero = 0);

  // Requires a fixed property of our network. Other values are foreign, but a missing key and null are accepted.
  void must_be(const std::string& key, const Json& ours);
  // Declares the classes of transformers whose tensors our network has.
  void architectures(const std::set<std::string>& known);
  bool has_architecture(const std::string& name) const;
  // Reads the number of classes if the file names one of these classes of transformers, which have a classifier head.
  void classes(const std::set<std::string>& classifiers);
  // Marks keys that do not change the outputs.
  void unused(const std::set<std::string>& keys) { read_.insert(keys.begin(), keys.end()); }
  // Adds "KEY is VALUE, this network has OURS".
  void foreign(const std::string& key, const std::string& value, const std::string& ours);
  // Adds every unread key with a value as foreign, unless all networks of transformers may have it and it does not affect the computation.
  void finish();

 private:
  // Returns the number of classes of the head: from id2label, otherwise from num_labels, otherwise 2.
  int64_t labels() const;
  std::optional<Json> value(const std::string& key);
  void add(const std::string& key, const std::string& theirs, const std::string& option, const ConfigNode& value, HubOption::Rule rule,
           bool size, double zero);

  HubNetwork& network_;
  Json object_;
  std::string prefix_;  // prefix of the keys: "vision_config."
  std::set<std::string> read_;
};

// Formats a value for messages: 1e-05, relu, [3, 4, 6, 3].
std::string hub_text(const Json& value);
// Converts a number to an option's value, without a decimal point if it is a whole number.
ConfigNode hub_number(double value);

}  // namespace npu_train::detail

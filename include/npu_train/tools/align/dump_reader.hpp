/// Reads dumps of this library and of Ascend's msprobe, which have the same layout (dump.json under stepN/rankR, tensors as .pt or .npy).
///
/// A dump is untrusted: names in it are checked before a file is opened, sizes before memory is allocated, and nothing in it is
/// executed. A truncated dump is read up to its end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace npu_train {

/// One value of a call: a tensor, or a plain argument.
struct DumpItem {
  std::string name;   ///< "Module.conv1.Conv2d.forward.0.input.0"
  std::string side;   ///< input | output | parameters | parameters_grad
  std::string dtype;  ///< "torch.float32"; "" for an item that is not a tensor
  std::vector<int64_t> shape{};
  bool requires_grad = false;
  /// Name of the parameter, if this item is a parameter that an operator receives as an input (`side` is then "parameters"). "" for other
  /// items, and in older dumps.
  std::string parameter{};
  std::optional<double> max{}, min{}, mean{}, norm{};
  std::string crc{};        ///< 8 hexadecimal digits; "": none
  std::string data_name{};  ///< file of the values; "": none
  int64_t sampled = 0;      ///< number of elements in the file if it contains only a sample; 0: all
  bool unscaled = false;    ///< a value of the backward pass that does not contain the loss scale
  std::string type{};       ///< Python's class of an item that is not a tensor ("float"); "" if unknown
  std::string value{};      ///< text of an item that is not a tensor ("0.1", "true"); "None" if no argument was given
  bool is_tensor() const { return !dtype.empty(); }
};

/// One call of a layer or an operator in one direction.
struct DumpCall {
  std::string name;       ///< "Module.conv1.Conv2d.forward.0", "Functional.relu.0.forward"
  std::string layer;      ///< "conv1" for a module; "relu.0" for an operator
  std::string type;       ///< "Conv2d"; "relu"
  std::string direction;  ///< forward | backward | parameters_grad
  int64_t number = 0;     ///< number of the call in its name; 0 for the first call of a layer or operator
  std::string parent{};   ///< name of the enclosing call; "" at the top level or if unknown
  bool is_module = false;
  std::vector<DumpItem> items{};
};

/// The calls of one step and rank, in the order in which they were dumped.
struct DumpStep {
  int64_t step = 0;
  std::string rank;              ///< "rank3"; "rank0" for a run that is not distributed
  std::filesystem::path folder;  ///< folder of its dump.json
  std::string task, level;
  std::map<std::string, std::string> facts{};  ///< recorded by our dumps: device, precision, libtorch, threads, loss_scale, seed ...
  bool complete = true;                        ///< false: the file is truncated
  std::vector<DumpCall> calls{};

  /// Returns the path of the file with an item's values. Error(Data) if the dump does not contain them, or if the file name leads out of
  /// the folder.
  std::filesystem::path file_of(const DumpItem& item) const;
};

/// The locations of a dump's steps.
class Dump {
 public:
  struct Place {
    int64_t step = 0;
    std::string rank;
    std::filesystem::path folder;
  };
  /// Opens a dump. `path` is the dump's folder, the folder of one step, a folder with a dump.json, or a dump.json. Error(Data) if there is
  /// no dump.json.
  static Dump open(const std::filesystem::path& path);

  /// Returns the places, sorted by step, then rank.
  const std::vector<Place>& places() const { return places_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::vector<Place> places_;
};

/// Reads one step. Error(Data) if its file is not a dump.json.
DumpStep read_dump_step(const Dump::Place& place);

/// Whether `path` is or contains a dump.
bool is_dump(const std::filesystem::path& path);

/// Returns the folder of the dump to which `path` belongs, if `path` is one of the other files or folders of a dump (stack.json,
/// construct.json, dump_tensor_data); "" for any other path.
std::filesystem::path dump_around(const std::filesystem::path& path);

}  // namespace npu_train

/// Reads dumps: ours, and those of Ascend's msprobe in their formats (dump.json under stepN/rankR, tensors as .pt or .npy).
///
/// A dump may come from anybody: names in it are checked before a file is opened, sizes before memory is spent, and nothing in it is
/// executed. One that was cut short is read up to where it ends.
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
  std::string dtype;  ///< "torch.float32"; "" of what is no tensor
  std::vector<int64_t> shape{};
  bool requires_grad = false;
  /// Name of the parameter that an operator's input is; such an item is of side parameters. "" else and in older dumps.
  std::string parameter{};
  std::optional<double> max{}, min{}, mean{}, norm{};
  std::string crc{};        ///< 8 hexadecimal digits; "" without
  std::string data_name{};  ///< file of the values; "" without
  int64_t sampled = 0;      ///< elements that the file holds, where it holds a sample; 0: all
  std::string type{};       ///< of what is no tensor, Python's name of its class ("float"); "" where it is not known
  std::string value{};      ///< of what is no tensor, as text ("0.1", "true"); "None" where nothing was given
  bool is_tensor() const { return !dtype.empty(); }
};

/// One call of a layer or an operator in one direction.
struct DumpCall {
  std::string name;       ///< "Module.conv1.Conv2d.forward.0", "Functional.relu.0.forward"
  std::string layer;      ///< "conv1" of a module; "relu.0" of an operator
  std::string type;       ///< "Conv2d"; "relu"
  std::string direction;  ///< forward | backward | parameters_grad
  int64_t number = 0;     ///< of the call
  std::string parent{};   ///< name of the call around it; "" at the top or where it is not known
  bool is_module = false;
  std::vector<DumpItem> items{};
};

/// The calls of one step and rank, in the order in which they were dumped.
struct DumpStep {
  int64_t step = 0;
  std::string rank;              ///< "rank3"; "rank0" of a run that is not distributed
  std::filesystem::path folder;  ///< of its dump.json
  std::string task, level;
  std::map<std::string, std::string> facts{};  ///< what our dumps note: device, precision, libtorch, threads, loss_scale, seed ...
  bool complete = true;                        ///< false: the file ends in the middle
  std::vector<DumpCall> calls{};

  /// The file of an item's values. Error(Data) when the dump has none or its name leads out of the folder.
  std::filesystem::path file_of(const DumpItem& item) const;
};

/// Where the steps of a dump lie.
class Dump {
 public:
  struct Place {
    int64_t step = 0;
    std::string rank;
    std::filesystem::path folder;
  };
  /// `path`: the dump's folder, one step of it, a folder with a dump.json, or that file. Error(Data) when there is no dump.json below.
  static Dump open(const std::filesystem::path& path);

  /// By step, then rank.
  const std::vector<Place>& places() const { return places_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::vector<Place> places_;
};

/// Error(Data) for what is no dump.json.
DumpStep read_dump_step(const Dump::Place& place);

/// Whether `path` is or holds a dump.
bool is_dump(const std::filesystem::path& path);

/// The folder with the dump.json that a file or folder belongs to without being a dump (stack.json, construct.json, dump_tensor_data); ""
/// for everything else.
std::filesystem::path dump_around(const std::filesystem::path& path);

}  // namespace npu_train

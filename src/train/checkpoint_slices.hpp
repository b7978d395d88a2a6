// Tensors that ranks wrote to a checkpoint in slices; reading joins them, or takes only a part.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

class SlicedTensors {
 public:
  // Reads the list in the manifest. Error(Checkpoint) unless the slices of each tensor cover it exactly once.
  SlicedTensors(const Json& manifest, const std::string& where);

  // Selects the parts that are read, and the parameters of which this rank needs only a slice: `own` for their state, `own_model` for the
  // parameters themselves. Call it once, before the other functions.
  void select(const std::function<bool(const std::string& part)>& wanted, const ParameterSet& own, const ParameterSet& own_model);
  bool has_file(const std::string& file) const { return files_.contains(file); }
  // Returns whether the file has elements that are needed.
  bool needs_file(const std::string& file) const;
  void read(const std::string& file, const std::filesystem::path& path);
  // Moves the tensors to `state`, after all needed files were read.
  void give(RunState& state);

 private:
  struct Piece {
    std::string file;
    int64_t begin, end;
  };
  struct Tensor {
    std::vector<int64_t> sizes, strides;
    std::vector<Piece> pieces;
    bool wanted = false, complete = true;
    int64_t begin = 0, end = 0;  // range of the needed elements
    at::Tensor values;           // the needed elements
    bool needs(const Piece& piece) const { return wanted && piece.begin < end && begin < piece.end; }
  };
  using Key = std::pair<std::string, std::string>;  // part and name

  void add(const Json& entry);
  void check_pieces(const Key& key, Tensor& tensor) const;

  std::string where_;
  std::map<Key, Tensor> tensors_;
  std::map<std::string, std::vector<Key>> files_;  // tensors of which a file has a slice
};

}  // namespace npu_train::detail

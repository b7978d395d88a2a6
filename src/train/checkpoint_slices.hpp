// Tensors of a checkpoint that ranks wrote in slices: found, joined, or read in part.
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
  // What the manifest lists. Error(Checkpoint) unless the slices of each tensor are all of it, once.
  SlicedTensors(const Json& manifest, const std::string& where);

  // To be called once, before the others: which parts are read, and the parameters of which this rank needs a slice only, of their state
  // and of themselves.
  void select(const std::function<bool(const std::string& part)>& wanted, const ParameterSet& own, const ParameterSet& own_model);
  bool has_file(const std::string& file) const { return files_.contains(file); }
  // Whether it has elements that are needed.
  bool needs_file(const std::string& file) const;
  void read(const std::string& file, const std::filesystem::path& path);
  // The tensors, when all files that are needed were read.
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
    int64_t begin = 0, end = 0;  // of the elements that are needed
    at::Tensor values;           // they
    bool needs(const Piece& piece) const { return wanted && piece.begin < end && begin < piece.end; }
  };
  using Key = std::pair<std::string, std::string>;  // part and name

  void add(const Json& entry);
  void check_pieces(const Key& key, Tensor& tensor) const;

  std::string where_;
  std::map<Key, Tensor> tensors_;
  std::map<std::string, std::vector<Key>> files_;  // the tensors that each has a slice of
};

}  // namespace npu_train::detail

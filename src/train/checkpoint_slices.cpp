#include "train/checkpoint_slices.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/safetensors.hpp"
#include "train/manifest.hpp"

namespace npu_train {
namespace detail {
namespace {

std::vector<int64_t> integers(const Json& list, const std::string& where) {
  std::vector<int64_t> out;
  for (const auto& item : list.items(where)) out.push_back(item.integer(where));
  return out;
}

// Returns the number of elements; -1 unless the strides place each of them once, without gaps.
int64_t dense_numel(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  constexpr int64_t kMost = int64_t{1} << 56;
  if (sizes.size() != strides.size()) return -1;
  int64_t numel = 1;
  for (const auto size : sizes) {
    if (size < 0 || (size > 0 && numel > kMost / size)) return -1;
    numel *= size;
  }
  for (const auto stride : strides)
    if (stride < 0 || stride > std::max<int64_t>(1, numel)) return -1;
  return at::empty_strided(sizes, strides, at::TensorOptions().device(at::kMeta)).is_non_overlapping_and_dense() ? numel : -1;
}

bool same_layout(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, const at::Tensor& tensor) {
  if (tensor.sizes() != sizes) return false;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1 && tensor.strides()[d] != strides[d]) return false;  // the stride of a single element has no meaning
  return true;
}

// Returns the sliced parameter to which the tensor "<kind>/<parameter>" (in the model: "<parameter>") belongs; nullptr if there is none.
const Parameter* slice_of(const ParameterSet& own, const ParameterSet& own_model, const std::string& part, const std::string& name) {
  const auto slash = name.find('/');
  const Parameter* parameter = nullptr;
  if (part == "model")
    parameter = own_model.find(name);
  else if (slash != std::string::npos)
    parameter = own.find(name.substr(slash + 1));
  return parameter != nullptr && parameter->is_slice() ? parameter : nullptr;
}

}  // namespace

SlicedTensors::SlicedTensors(const Json& manifest, const std::string& where) : where_(where) {
  for (const auto& entry : manifest.at("tensors", where).items(where))
    if (entry.find("sizes") != nullptr) add(entry);
  for (auto& [key, tensor] : tensors_) check_pieces(key, tensor);
}

void SlicedTensors::add(const Json& entry) {
  const Key key(entry.at("part", where_).text(where_), entry.at("name", where_).text(where_));
  const auto& file = entry.at("file", where_).text(where_);
  const auto range = integers(entry.at("range", where_), where_);
  auto sizes = integers(entry.at("sizes", where_), where_), strides = integers(entry.at("strides", where_), where_);
  check(range.size() == 2 && dense_numel(sizes, strides) >= 0, ErrorKind::Checkpoint, kCheckpointWhere, where_, ": the slice of ",
        key.second, " in ", file, " has no valid range, sizes or strides; hint: ", kOlderCheckpoint);
  auto& tensor = tensors_[key];
  check(tensor.pieces.empty() || (tensor.sizes == sizes && tensor.strides == strides), ErrorKind::Checkpoint, kCheckpointWhere, where_,
        ": the slices of ", key.second, " are of tensors of different shapes; hint: ", kOlderCheckpoint);
  tensor.sizes = std::move(sizes);
  tensor.strides = std::move(strides);
  tensor.pieces.push_back({file, range[0], range[1]});
  files_[file].push_back(key);
}

void SlicedTensors::check_pieces(const Key& key, Tensor& tensor) const {
  std::sort(tensor.pieces.begin(), tensor.pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  const int64_t numel = dense_numel(tensor.sizes, tensor.strides);
  int64_t end = 0;
  for (const auto& piece : tensor.pieces) {
    check(piece.begin == end && piece.end > piece.begin && piece.end <= numel, ErrorKind::Checkpoint, kCheckpointWhere, where_,
          ": the slices of ", key.second, " leave out or repeat elements at ", end, " of ", numel, "; hint: ", kOlderCheckpoint);
    end = piece.end;
  }
  check(end == numel, ErrorKind::Checkpoint, kCheckpointWhere, where_, ": the slices of ", key.second, " end at element ", end, " of ",
        numel, "; hint: ", kOlderCheckpoint);
  tensor.end = numel;
}

void SlicedTensors::select(const std::function<bool(const std::string& part)>& wanted, const ParameterSet& own,
                           const ParameterSet& own_model) {
  for (auto& [key, tensor] : tensors_) {
    tensor.wanted = wanted(key.first);
    const auto* parameter = slice_of(own, own_model, key.first, key.second);
    if (parameter == nullptr || !same_layout(tensor.sizes, tensor.strides, parameter->whole())) continue;
    tensor.complete = false;
    tensor.begin = parameter->begin;
    tensor.end = parameter->begin + parameter->value.numel();
  }
}

bool SlicedTensors::needs_file(const std::string& file) const {
  const auto& keys = files_.at(file);
  return std::any_of(keys.begin(), keys.end(), [&](const Key& key) {
    const auto& tensor = tensors_.at(key);
    return std::any_of(tensor.pieces.begin(), tensor.pieces.end(), [&](const Piece& p) { return p.file == file && tensor.needs(p); });
  });
}

void SlicedTensors::read(const std::string& file, const std::filesystem::path& path) {
  const SafetensorsFile content(path);
  for (const auto& key : files_.at(file)) {
    auto& tensor = tensors_.at(key);
    for (const auto& piece : tensor.pieces) {
      if (piece.file != file || !tensor.needs(piece)) continue;
      const auto& info = content.info(key.second);
      const bool same_dtype = !tensor.values.defined() || tensor.values.scalar_type() == info.dtype;
      check(same_dtype && info.shape == std::vector<int64_t>{piece.end - piece.begin}, ErrorKind::Checkpoint, kCheckpointWhere,
            path.string(), ": ", key.second,
            " has another shape or dtype than the manifest and the other slices; hint: ", kOlderCheckpoint);
      if (!tensor.values.defined()) tensor.values = at::empty({tensor.end - tensor.begin}, info.dtype);
      const auto begin = std::max(piece.begin, tensor.begin), end = std::min(piece.end, tensor.end);
      tensor.values.narrow(0, begin - tensor.begin, end - begin)
          .copy_(content.tensor(key.second).narrow(0, begin - piece.begin, end - begin));
    }
  }
}

void SlicedTensors::give(RunState& state) {
  for (auto& [key, tensor] : tensors_) {
    if (!tensor.wanted) continue;
    auto& to = state[key.first].tensors[key.second];
    if (tensor.complete)
      to = tensor.values.as_strided(tensor.sizes, tensor.strides).contiguous();
    else if (tensor.values.defined())
      to = tensor.values;
    else  // an empty slice: no file contains any of it
      to = at::empty({0});
    tensor.values.reset();
  }
}

}  // namespace detail

std::string write_slices(const std::filesystem::path& folder, int rank, const StateSlices& slices) {
  std::error_code error;
  check(std::filesystem::is_directory(folder, error), ErrorKind::Checkpoint, detail::kCheckpointWhere, "rank ", rank, " does not see ",
        folder.string(), ", where rank 0 writes a checkpoint; hint: output.dir must be on a file system that all machines share");
  const auto suffix = printed(".rank%04d.safetensors", rank);
  Json files = Json::array(), listed = Json::array();
  for (const auto& [part, tensors] : slices) {
    NamedTensors values;
    const auto file = part + suffix;
    for (const auto& [name, slice] : tensors) {
      if (slice.value.numel() == 0) continue;
      values.emplace_back(name, slice.value);
      listed.push_back(Json::object({{"name", name},
                                     {"part", part},
                                     {"file", file},
                                     {"rank", rank},
                                     {"range", Json::array({slice.begin, slice.begin + slice.value.numel()})},
                                     {"sizes", detail::json_list(slice.sizes)},
                                     {"strides", detail::json_list(slice.strides)}}));
    }
    if (!values.empty()) files.push_back(detail::file_entry(file, save_safetensors(folder / file, values)));
  }
  return Json::object({{"files", std::move(files)}, {"tensors", std::move(listed)}}).dump();
}

}  // namespace npu_train

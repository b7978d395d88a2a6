#include "engine/weight_shards.hpp"

#include <map>
#include <unordered_map>

#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/pickle.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kWhere = "weights";
constexpr JsonLimits kLimits{.depth = 8, .values = 4'000'000};

// Files of an index in the order of their first mention, each with the tensors that it must contain.
using Shards = std::vector<std::pair<std::string, std::vector<std::string>>>;

Shards read_index(const std::filesystem::path& index) {
  Shards out;
  std::unordered_map<std::string, size_t> places;
  const auto json = load_json(index, kLimits);
  const auto source = index.filename().string();
  for (const auto& [tensor, file] : json.at("weight_map", source).members("weight_map")) {
    const auto& name = file.text("weight_map." + tensor);
    const auto place = places.emplace(name, out.size());
    if (place.second) out.emplace_back(name, std::vector<std::string>());
    out[place.first->second].second.push_back(tensor);
  }
  return out;
}

NamedTensors load_shard(const std::filesystem::path& path) {
  return is_safetensors_name(path) ? load_safetensors(path) : load_pth(path).tensors;
}

}  // namespace

bool is_weight_index(const std::filesystem::path& path) { return to_lower(path.filename().string()).ends_with(".index.json"); }

std::filesystem::path weights_in_folder(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "manifest.json")) return {};  // the folder is a checkpoint of npu_train
  for (const char* name : {"model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin"})
    if (std::filesystem::exists(folder / name)) return folder / name;
  return {};
}

NamedTensors load_weight_shards(const std::filesystem::path& index) {
  const auto where = index.string();
  Shards shards;
  try {
    shards = read_index(index);
  } catch (const Error& e) {
    throw Error(ErrorKind::Checkpoint, kWhere, where + ": not an index of weights: " + e.what(), "", std::current_exception());
  }
  check(!shards.empty(), ErrorKind::Checkpoint, kWhere, where, ": the index names no tensors");
  // Checks all files before reading the first one.
  std::vector<std::filesystem::path> paths;
  for (const auto& [file, tensors] : shards) {
    check(is_safetensors_name(file) || is_pth_name(file), ErrorKind::Checkpoint, kWhere, where, ": names '", file,
          "', which is not a file of weights; allowed: .safetensors, .bin, .pt, .pth");
    // Not safe_join: the Hugging Face Hub's cache has links to files outside of the folder, which must be followed.
    check(file.find('/') == std::string::npos && file.find('\0') == std::string::npos, ErrorKind::Checkpoint, kWhere, where, ": names '",
          file, "', which is not next to the index; only file names without a folder are allowed");
    paths.push_back(index.parent_path() / file);
    check(std::filesystem::exists(paths.back()), ErrorKind::Checkpoint, kWhere, where, ": '", file, "' is missing, with ", tensors.size(),
          " tensors; hint: download all files of the index");
  }
  NamedTensors out;
  std::unordered_map<std::string, std::string> seen;  // file of each tensor
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto& [file, tensors] = shards[i];
    for (auto& tensor : load_shard(paths[i])) {
      const auto added = seen.emplace(tensor.first, file);
      check(added.second, ErrorKind::Checkpoint, kWhere, where, ": '", tensor.first, "' is in '", added.first->second, "' and in '", file,
            "'");
      out.push_back(std::move(tensor));
    }
    for (const auto& name : tensors) {
      const auto found = seen.find(name);
      check(found != seen.end() && found->second == file, ErrorKind::Checkpoint, kWhere, where, ": '", name, "' is not in '", file, "'");
    }
  }
  return out;
}

}  // namespace npu_train::detail

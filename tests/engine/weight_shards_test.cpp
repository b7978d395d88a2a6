#include "testing.hpp"

#include "npu_train/engine/weights.hpp"

#include <fstream>
#include <map>

#include <ATen/ops/full.h>

#include "npu_train/io/json.hpp"
#include "npu_train/io/pth_writer.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

void write_index(const std::filesystem::path& path, const std::map<std::string, std::string>& files) {
  auto map = Json::object();
  for (const auto& [tensor, file] : files) map.set(tensor, file);
  save_json(path, Json::object({{"metadata", Json::object({{"total_size", 8}})}, {"weight_map", map}}));
}

NamedTensors one(const std::string& name, double value) { return {{name, at::full({2}, value)}}; }

}  // namespace

TEST_CASE("shards of both formats, by their index and by their folder") {
  TempDir dir;
  save_safetensors(dir / "model-00001-of-00002.safetensors", one("a", 1));
  save_safetensors(dir / "model-00002-of-00002.safetensors", one("b", 2));
  const auto index = dir / "model.safetensors.index.json";
  write_index(index, {{"a", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}});
  for (const auto& path : {index, dir.path()}) {
    const auto tensors = read_weights_file(path.string());
    REQUIRE(tensors.size() == 2);
    CHECK(tensors[0].first == "a");
    CHECK(tensors[1].second[0].item<double>() == 2);
  }
  TempDir other;
  save_pth(other / "pytorch_model-00001-of-00001.bin", PthValue::dict(one("c", 3)));
  write_index(other / "pytorch_model.bin.index.json", {{"c", "pytorch_model-00001-of-00001.bin"}});
  CHECK(read_weights_file(other.path().string()).front().first == "c");
  // In the Hub's cache, the folder has links to the files.
  TempDir cache;
  std::filesystem::create_symlink(index, cache / "model.safetensors.index.json");
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
    std::filesystem::create_symlink(dir / name, cache / name);
  CHECK(read_weights_file(cache.path().string()).size() == 2);
}

TEST_CASE("a folder of Hugging Face's with one file") {
  TempDir dir;
  save_safetensors(dir / "model.safetensors", one("a", 1));
  CHECK(read_weights_file(dir.path().string()).size() == 1);
}

TEST_CASE("an index that is wrong is one error that names the index") {
  TempDir dir;
  const auto index = dir / "model.safetensors.index.json", secret = dir / "outside.safetensors";
  std::filesystem::create_directories(dir / "inside");
  save_safetensors(secret, one("a", 1));
  save_safetensors(dir / "x.safetensors", one("a", 1));
  save_safetensors(dir / "y.safetensors", {{"a", at::full({2}, 2)}, {"b", at::full({2}, 2)}});
  struct Row {
    const char* name;
    std::map<std::string, std::string> files;
    const char* part;
  };
  const Row rows[] = {
      {"leads up", {{"a", "../outside.safetensors"}}, "not next to the index"},
      {"absolute", {{"a", secret.string()}}, "not next to the index"},
      {"in another folder", {{"a", "inside/x.safetensors"}}, "not next to the index"},
      {"names itself", {{"a", "model.safetensors.index.json"}}, "not a file of weights"},
      {"names another index", {{"a", "other.bin.index.json"}}, "not a file of weights"},
      {"a shard is missing", {{"a", "x.safetensors"}, {"b", "z.safetensors"}}, "'z.safetensors' is missing, with 1 tensors"},
      {"a tensor in two files", {{"a", "x.safetensors"}, {"b", "y.safetensors"}}, "'a' is in 'x.safetensors' and in 'y.safetensors'"},
      {"a tensor is not in its file", {{"a", "x.safetensors"}, {"c", "x.safetensors"}}, "'c' is not in 'x.safetensors'"},
      {"no tensors", {}, "names no tensors"},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(row.name));
    write_index(index, row.files);
    const auto error = error_of([&] { read_weights_file(index.string()); });
    CHECK(error.kind() == ErrorKind::Checkpoint);
    CHECK_MESSAGE(has(error.what(), row.part), error.what());
    CHECK(has(error.what(), "model.safetensors.index.json"));
  }
  for (const char* text : {"", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})",
                           R"({"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}})"}) {
    CAPTURE(std::string(text));
    std::ofstream(index) << text;
    const auto error = error_of([&] { read_weights_file(index.string()); });
    CHECK(error.kind() == ErrorKind::Checkpoint);
    CHECK_MESSAGE(has(error.what(), "not an index of weights"), error.what());
  }
}

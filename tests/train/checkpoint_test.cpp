#include "testing.hpp"

#include "npu_train/train/checkpoint.hpp"

#include <cmath>
#include <csignal>
#include <fstream>

#include <sys/resource.h>

#include "npu_train/base/state.hpp"
#include "npu_train/io/json.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

RunState example() {
  RunState s;
  s["model"].tensors["fc.weight"] = torch::arange(12, torch::kFloat).reshape({3, 4});
  s["model"].tensors["half"] = torch::ones({2}, torch::kHalf);
  s["rng"].tensors["cpu"] = torch::arange(16, torch::kUInt8);
  s["loop"].values["global_step"] = int64_t{1} << 60;
  s["loop"].values["best"] = std::nan("");
  s["loop"].values["lr"] = 0.1;
  s["loop"].values["name"] = std::string("a \"b\"\n");
  s["scaler"];
  return s;
}

void flip_byte(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char c = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(c ^ 1));
}

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }

std::string read_text(const fs::path& path) {
  std::ifstream in(path);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

std::string saved(const TempDir& dir) {
  const auto path = (dir / "c").string();
  CheckpointMeta meta;
  meta.global_step = 7;
  meta.score = std::nan("");
  meta.model = "toy";
  save_checkpoint(path, example(), meta, ConfigNode{{"seed", 1}});
  return path;
}

}  // namespace

TEST_CASE("what is saved comes back bit for bit") {
  TempDir dir;
  const auto path = saved(dir);
  const auto back = load_checkpoint(path), before = example();
  CHECK(back.size() == before.size());
  for (const auto& [part, content] : before) {
    CAPTURE(part);
    CHECK(digest(back.at(part)) == digest(content));
  }
  CHECK(read_checkpoint_meta(path).global_step == 7);
  CHECK(std::isnan(read_checkpoint_meta(path).score));
  CHECK(load_checkpoint_config(path).find("seed")->scalar() == "1");
  CHECK(load_checkpoint(path, {"rng"}).size() == 1);
  verify_checkpoint(path);
}

TEST_CASE("the permission to run the code of a model is not taken from a checkpoint") {
  TempDir dir;
  const auto path = (dir / "c").string();
  save_checkpoint(path, example(), {}, ConfigNode{{"model", ConfigNode{{"name", "torchscript"}, {"allow_code", true}}}});
  const auto config = load_checkpoint_config(path);
  CHECK(config.find("model")->find("name")->scalar() == "torchscript");
  CHECK(config.find("model")->find("allow_code") == nullptr);
}

TEST_CASE("saving over a checkpoint replaces it completely") {
  TempDir dir;
  const auto path = saved(dir);
  RunState other;
  other["model"].tensors["x"] = torch::ones({1});
  save_checkpoint(path, other, {}, ConfigNode::map());
  CHECK(load_checkpoint(path).size() == 1);
}

TEST_CASE("damage of every file is found and named") {
  for (const char* file : {"model.safetensors", "rng.safetensors", "state.json", "config.yaml"}) {
    CAPTURE(file);
    TempDir dir;
    const auto path = saved(dir);
    SUBCASE("flipped") { flip_byte(fs::path(path) / file); }
    SUBCASE("missing") { fs::remove(fs::path(path) / file); }
    SUBCASE("short") { fs::resize_file(fs::path(path) / file, 3); }
    const auto e = error_of([&] { verify_checkpoint(path); });
    CHECK(e.kind() == ErrorKind::Checkpoint);
    CHECK(std::string(e.what()).find(file) != std::string::npos);
    CHECK(error_of([&] { load_checkpoint(path); }).kind() == ErrorKind::Checkpoint);
  }
}

TEST_CASE("manifests that are missing, cut, foreign, newer or lead outside are refused") {
  TempDir dir;
  const auto path = saved(dir);
  const auto manifest = fs::path(path) / "manifest.json";
  const auto whole = read_text(manifest);
  const auto refused = [&](const std::string& text, const std::string& word) {
    write_text(manifest, text);
    const auto e = error_of([&] { load_checkpoint(path); });
    CHECK(e.kind() == ErrorKind::Checkpoint);
    CAPTURE(e.what());
    CHECK(std::string(e.what()).find(word) != std::string::npos);
  };
  for (size_t n = 0; n < whole.size() - 1; n += 97) refused(whole.substr(0, n), "");
  refused("{}", "no manifest of npu_train");
  refused("[1]", "");
  refused("{\"format\": 99}", "newer");
  auto outside = whole;
  outside.replace(outside.find("model.safetensors"), 17, "../model.safetens");
  refused(outside, "");
  auto huge = whole;
  huge.replace(huge.find("\"bytes\":"), 8, "\"bytes\":9");
  refused(huge, "");
  fs::remove(manifest);
  CHECK(error_of([&] { load_checkpoint(path); }).kind() == ErrorKind::Checkpoint);
}

TEST_CASE("a manifest of which any bit changed is refused") {
  TempDir dir;
  const auto path = saved(dir);
  const auto manifest = fs::path(path) / "manifest.json";
  const auto whole = read_text(manifest);
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0, 1, 4}) {
      auto changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      write_text(manifest, changed);
      CAPTURE(at);
      CAPTURE(bit);
      REQUIRE(error_of([&] { read_checkpoint_meta(path); }).kind() == ErrorKind::Checkpoint);
    }
  }
  write_text(manifest, whole + " ");
  CHECK(error_of([&] { read_checkpoint_meta(path); }).kind() == ErrorKind::Checkpoint);
  write_text(manifest, whole);
  verify_checkpoint(path);
}

namespace {

/// Writes the manifest of a checkpoint in format 1, with some members changed.
void write_format_1(const std::string& path, const std::vector<std::pair<std::string, Json>>& changes) {
  const auto file = fs::path(path) / "manifest.json";
  const auto written = load_json(file);
  Json old;
  for (const auto& [key, value] : written.members(""))
    if (key != "manifest_checksum") old.set(key, value);
  old.set("format", 1);
  for (const auto& [key, value] : changes) old.set(key, value);
  write_text(file, old.dump());
}

}  // namespace

TEST_CASE("checkpoints of format 1, without a checksum of the manifest, are read") {
  TempDir dir;
  const auto path = saved(dir);
  write_format_1(path, {{"global_step", int64_t{1} << 53}, {"serial", 3}});
  CHECK(read_checkpoint_meta(path).format == 1);
  CHECK(read_checkpoint_meta(path).serial == 3);
  CHECK(digest(load_checkpoint(path).at("model")) == digest(example().at("model")));
}

TEST_CASE("a manifest that lacks files, lists them twice or counts what cannot be is refused") {
  TempDir dir;
  const auto path = saved(dir);
  const auto files = load_json(fs::path(path) / "manifest.json").at("files", "").items("");
  const auto without = [&](const std::string& name) {
    auto out = Json::array();
    for (const auto& file : files)
      if (file.at("name", "").text("") != name) out.push_back(file);
    return out;
  };
  const auto whole = read_text(fs::path(path) / "manifest.json");
  const auto refused = [&](const char* key, const Json& value, const std::string& word) {
    write_text(fs::path(path) / "manifest.json", whole);
    write_format_1(path, {{key, value}});
    for (const auto& e : {error_of([&] { verify_checkpoint(path); }), error_of([&] { load_checkpoint(path); }),
                          error_of([&] { read_checkpoint_meta(path); })}) {
      CHECK(e.kind() == ErrorKind::Checkpoint);
      CHECK_MESSAGE(has(e.what(), word), e.what());
    }
  };
  refused("files", Json::array(), "config.yaml");
  for (const char* name : {"model.safetensors", "rng.safetensors", "state.json", "config.yaml"}) refused("files", without(name), name);
  auto twice = without("");
  twice.push_back(files.front());
  refused("files", twice, "twice");
  for (const char* key : {"epoch", "global_step", "batches_seen", "serial"}) {
    refused(key, std::numeric_limits<int64_t>::max(), key);
    refused(key, -1, key);
    refused(key, 0.5, "");
  }
}

TEST_CASE("counters of a manifest without a checksum must be those of its state") {
  TempDir dir;
  const auto path = (dir / "c").string();
  auto state = example();
  state["loop"].values["global_step"] = int64_t{7};
  CheckpointMeta meta;
  meta.global_step = 7;
  save_checkpoint(path, state, meta, ConfigNode::map());
  write_format_1(path, {});
  verify_checkpoint(path);
  write_format_1(path, {{"global_step", 3}});
  CHECK(has(error_of([&] { verify_checkpoint(path); }).what(), "global_step is 3, in state.json it is 7"));
}

TEST_CASE("a full disk leaves the older checkpoint intact") {
  TempDir dir;
  const auto path = saved(dir);
  auto big = example();
  big["model"].tensors["big"] = torch::zeros({1 << 20});
  // Sets a limit on file sizes, so that write() fails as on a full disk.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit small{1 << 16, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto e = error_of([&] { save_checkpoint(path, big, {}, ConfigNode::map()); });
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(e.kind() == ErrorKind::Checkpoint);
  CHECK(digest(load_checkpoint(path).at("model")) == digest(example().at("model")));
  size_t left = 0;
  for (const auto& item : fs::directory_iterator(dir.path())) left += item.path().filename() != "c";
  CHECK(left == 0);
}

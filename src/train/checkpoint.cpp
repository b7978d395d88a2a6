#include "npu_train/train/checkpoint.hpp"

#include <algorithm>
#include <filesystem>

#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/io/checksum.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/safetensors.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "Checkpoint";
constexpr const char* kOlder = "take an older checkpoint of the run: --resume auto passes over damaged ones";

/// The plain fields of a CheckpointMeta under their names in the manifest, once for writing and reading.
template <class Meta, class Fn>
void for_each_field(Meta& m, Fn&& fn) {
  fn("format", m.format);
  fn("epoch", m.epoch);
  fn("global_step", m.global_step);
  fn("batches_seen", m.batches_seen);
  fn("serial", m.serial);
  fn("score", m.score);
  fn("monitor", m.monitor);
  fn("model", m.model);
  fn("library", m.library);
  fn("torch", m.torch);
  fn("threads", m.threads);
  fn("cpu", m.cpu);
  fn("device", m.device);
  fn("precision", m.precision);
  fn("config_digest", m.config_digest);
  fn("classes", m.classes);
}

struct FieldReader {
  const Json& manifest;
  const std::string& where;
  void operator()(const char* key, int64_t& value) const { value = manifest.at(key, where).integer(where); }
  void operator()(const char* key, double& value) const { value = manifest.at(key, where).number(where); }
  void operator()(const char* key, std::string& value) const { value = manifest.at(key, where).text(where); }
};

std::string manifest_path(const std::string& dir) { return (fs::path(dir) / "manifest.json").string(); }

/// What a damaged file makes the readers throw becomes an Error(Checkpoint).
template <class Fn>
auto reading(Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Checkpoint) throw;
    throw Error(ErrorKind::Checkpoint, kWhere, e.what(), kOlder, std::current_exception());
  }
}

/// The manifest, its format checked first: a newer one may look different in every other respect.
Json read_manifest(const std::string& dir) {
  const auto path = manifest_path(dir);
  check(fs::is_regular_file(path), ErrorKind::Checkpoint, kWhere, dir,
        ": is no complete checkpoint, it has no manifest.json; hint: ", kOlder);
  auto manifest = load_json(path);
  const auto* format = manifest.find("format");
  check(format != nullptr && format->integer(path) >= 1, ErrorKind::Checkpoint, kWhere, path,
        ": is no manifest of npu_train; hint: ", kOlder);
  check(format->integer(path) <= kCheckpointFormat, ErrorKind::Checkpoint, kWhere, path, ": has format ", format->integer(path),
        "; this version reads up to ", kCheckpointFormat, "; hint: use the npu_train that wrote it, or a newer one");
  return manifest;
}

uint64_t parse_hex64(const std::string& text, const std::string& where) {
  check(text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos, ErrorKind::Checkpoint, kWhere, where,
        ": a checksum is damaged; hint: ", kOlder);
  return std::stoull(text, nullptr, 16);
}

/// Calls `fn(name, path)` for each listed file, or for `only` that one, after its size and checksum were verified.
template <class Fn>
void for_each_file(const std::string& dir, const Json& manifest, Fn&& fn, const std::string& only = "") {
  const auto where = manifest_path(dir);
  for (const auto& file : manifest.at("files", where).items(where)) {
    const auto& name = file.at("name", where).text(where);
    if (!only.empty() && name != only) continue;
    const auto path = safe_join(dir, name).string();
    check(fs::is_regular_file(path), ErrorKind::Checkpoint, kWhere, path, ": is missing; the manifest lists it; hint: ", kOlder);
    verify_file(path, static_cast<uint64_t>(file.at("bytes", where).integer(where)),
                parse_hex64(file.at("checksum", where).text(where), where));
    fn(name, path);
  }
}

}  // namespace

void save_checkpoint(const std::string& dir, const RunState& state, const CheckpointMeta& meta, const ConfigNode& config) {
  if (const auto parent = fs::path(dir).parent_path(); !parent.empty()) make_folder(parent);
  AtomicDirectory target(dir);
  Json manifest, files = Json::array(), listed = Json::array(), values = Json::object();
  for_each_field(meta, [&](const char* key, const auto& value) { manifest.set(key, value); });
  const auto list = [&](const std::string& name, const WrittenFile& written) {
    files.push_back(Json::object({{"name", name}, {"bytes", static_cast<int64_t>(written.bytes)}, {"checksum", hex64(written.checksum)}}));
  };
  for (const auto& [part, content] : state) {
    values.set(part, values_to_json(content.values));
    if (content.tensors.empty()) continue;
    const auto file = part + ".safetensors";
    const NamedTensors tensors(content.tensors.begin(), content.tensors.end());
    list(file, save_safetensors(target.temporary() / file, tensors, {{"format", "pt"}}));
    for (const auto& [name, tensor] : tensors)
      listed.push_back(Json::object({{"name", name}, {"file", file}, {"rank", 0}, {"range", Json::array({0, tensor.numel()})}}));
  }
  list("state.json", write_file_atomic(target.temporary() / "state.json", values.dump()));
  list("config.yaml", write_file_atomic(target.temporary() / "config.yaml", to_yaml(config)));
  manifest.set("files", std::move(files));
  manifest.set("tensors", std::move(listed));
  write_file_atomic(target.temporary() / "manifest.json", manifest.dump());
  target.commit();
}

CheckpointMeta read_checkpoint_meta(const std::string& dir) {
  return reading([&] {
    const auto manifest = read_manifest(dir);
    CheckpointMeta meta;
    for_each_field(meta, FieldReader{manifest, manifest_path(dir)});
    return meta;
  });
}

RunState load_checkpoint(const std::string& dir, const std::vector<std::string>& parts) {
  return reading([&] {
    const auto wanted = [&](const std::string& part) {
      return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
    };
    RunState state;
    for_each_file(dir, read_manifest(dir), [&](const std::string& name, const std::string& path) {
      const fs::path file(name);
      if (name == "state.json") {
        const auto document = load_json(path);
        for (const auto& [part, values] : document.members(path))
          if (wanted(part)) state[part].values = values_from_json(values, path);
      } else if (file.extension() == ".safetensors" && wanted(file.stem().string())) {
        for (auto& [key, tensor] : load_safetensors(path)) state[file.stem().string()].tensors.emplace(key, std::move(tensor));
      }
    });
    return state;
  });
}

ConfigNode load_checkpoint_config(const std::string& dir) {
  return reading([&] {
    ConfigNode config;
    const auto read = [&](const std::string&, const std::string& path) { config = load_yaml(path); };
    for_each_file(dir, read_manifest(dir), read, "config.yaml");
    return config;
  });
}

void verify_checkpoint(const std::string& dir) {
  reading([&] { for_each_file(dir, read_manifest(dir), [](const std::string&, const std::string&) {}); });
}

}  // namespace npu_train

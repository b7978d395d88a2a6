#include "npu_train/train/checkpoint.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

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

/// The last member of a manifest whose text before it is `text`: a checksum of every byte of it.
std::string seal_of(std::string_view text) { return ",\n  \"manifest_checksum\": \"" + hex64(hash64(text)) + "\"\n}\n"; }

std::string sealed(const Json& manifest) {
  auto text = manifest.dump();
  text.resize(text.rfind("\n}"));
  return text + seal_of(text);
}

void check_seal(const std::string& text, const std::string& path) {
  const auto at = text.rfind(",\n  \"manifest_checksum\"");
  check(at != std::string::npos && text.substr(at) == seal_of(std::string_view(text).substr(0, at)), ErrorKind::Checkpoint, kWhere, path,
        ": is damaged, its checksum is not that of its content; hint: ", kOlder);
}

/// What any manifest must hold, so that nothing is loaded in part: counters that can be, and every file that it needs, once.
void check_content(const Json& manifest, const std::string& path) {
  constexpr int64_t kLargest = int64_t{1} << 53;
  for (const char* key : {"epoch", "global_step", "batches_seen", "serial", "threads"}) {
    const auto value = manifest.at(key, path).integer(path);
    check(value >= 0 && value <= kLargest, ErrorKind::Checkpoint, kWhere, path, ": ", key, " is ", value, "; allowed: 0 to ", kLargest,
          "; hint: ", kOlder);
  }
  std::set<std::string> listed;
  for (const auto& file : manifest.at("files", path).items(path)) {
    const auto& name = file.at("name", path).text(path);
    check(listed.insert(name).second, ErrorKind::Checkpoint, kWhere, path, ": files lists ", name, " twice; hint: ", kOlder);
  }
  std::set<std::string> wanted = {"config.yaml", "state.json"};
  for (const auto& tensor : manifest.at("tensors", path).items(path)) wanted.insert(tensor.at("file", path).text(path));
  for (const auto& name : wanted)
    check(listed.count(name) == 1, ErrorKind::Checkpoint, kWhere, path, ": files does not list ", name, "; hint: ", kOlder);
}

/// The manifest, its format checked first: a newer one may look different in every other respect.
Json read_manifest(const std::string& dir) {
  const auto path = manifest_path(dir);
  check(fs::is_regular_file(path), ErrorKind::Checkpoint, kWhere, dir,
        ": is no complete checkpoint, it has no manifest.json; hint: ", kOlder);
  const auto text = read_file(path, JsonLimits{}.max_bytes, ErrorKind::Checkpoint);
  auto manifest = parse_json(text, path);
  const auto* format = manifest.find("format");
  check(format != nullptr && format->integer(path) >= 1, ErrorKind::Checkpoint, kWhere, path,
        ": is no manifest of npu_train; hint: ", kOlder);
  check(format->integer(path) <= kCheckpointFormat, ErrorKind::Checkpoint, kWhere, path, ": has format ", format->integer(path),
        "; this version reads up to ", kCheckpointFormat, "; hint: use the npu_train that wrote it, or a newer one");
  if (format->integer(path) >= 2) check_seal(text, path);
  check_content(manifest, path);
  return manifest;
}

/// A manifest without a checksum may say another step than the state that it is of.
void check_counters(const std::string& dir, const Json& manifest) {
  const auto where = manifest_path(dir);
  if (manifest.at("format", where).integer(where) >= 2) return;
  const auto path = (fs::path(dir) / "state.json").string();
  const auto document = load_json(path);
  const auto* loop = document.find("loop");
  for (const char* key : {"epoch", "global_step", "batches_seen"}) {
    const auto* value = loop != nullptr ? loop->find(key) : nullptr;
    if (value == nullptr) continue;
    check(value->integer(path) == manifest.at(key, where).integer(where), ErrorKind::Checkpoint, kWhere, where, ": ", key, " is ",
          manifest.at(key, where).integer(where), ", in state.json it is ", value->integer(path), "; hint: ", kOlder);
  }
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

std::map<std::string, std::string> aliases_of(const State& part) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : part.values)
    if (key.starts_with(kAliasKey) && std::holds_alternative<std::string>(value))
      out.emplace(key.substr(std::string_view(kAliasKey).size()), std::get<std::string>(value));
  return out;
}

NamedTensors tensors_by_every_name(const State& part) {
  NamedTensors out(part.tensors.begin(), part.tensors.end());
  for (const auto& [alias, name] : aliases_of(part))
    if (const auto found = part.tensors.find(name); found != part.tensors.end() && part.tensors.count(alias) == 0)
      out.emplace_back(alias, found->second);
  return out;
}

void save_checkpoint(const std::string& dir, const RunState& state, const CheckpointMeta& meta, const ConfigNode& config,
                     const std::function<void()>& before_commit) {
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
    std::map<std::string, std::string> metadata = {{"format", "pt"}};
    for (const auto& [alias, name] : aliases_of(content)) metadata.emplace(alias, name);  // as safetensors.torch.save_model does
    list(file, save_safetensors(target.temporary() / file, tensors, metadata));
    for (const auto& [name, tensor] : tensors)
      listed.push_back(Json::object({{"name", name}, {"file", file}, {"rank", 0}, {"range", Json::array({0, tensor.numel()})}}));
  }
  list("state.json", write_file_atomic(target.temporary() / "state.json", values.dump()));
  list("config.yaml", write_file_atomic(target.temporary() / "config.yaml", to_yaml(config)));
  manifest.set("files", std::move(files));
  manifest.set("tensors", std::move(listed));
  write_file_atomic(target.temporary() / "manifest.json", sealed(manifest));
  if (before_commit) before_commit();
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
    // The permission to run the code of a model is given by the user of a checkpoint, not by its author.
    if (auto* model = config.find("model"); model != nullptr && model->is_map()) model->erase("allow_code");
    return config;
  });
}

void verify_checkpoint(const std::string& dir) {
  reading([&] {
    const auto manifest = read_manifest(dir);
    for_each_file(dir, manifest, [](const std::string&, const std::string&) {});
    check_counters(dir, manifest);
  });
}

}  // namespace npu_train

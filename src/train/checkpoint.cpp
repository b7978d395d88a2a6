#include "npu_train/train/checkpoint.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/io/state_json.hpp"
#include "train/checkpoint_slices.hpp"
#include "train/manifest.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

/// Visits the plain fields of a CheckpointMeta with their names in the manifest: one list for writing and reading.
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

// Verifies each listed file for which `needed(name)` is true, and then calls `fn(name, path)` with it.
template <class Needed, class Fn>
void for_each_file(const std::string& dir, const Json& manifest, Needed&& needed, Fn&& fn) {
  const auto where = detail::manifest_path(dir);
  for (const auto& file : manifest.at("files", where).items(where)) {
    const auto& name = file.at("name", where).text(where);
    if (needed(name)) fn(name, detail::verified_path(dir, file));
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

struct CheckpointFolder::Impl {
  explicit Impl(const std::string& dir) : folder(dir) {}
  AtomicDirectory folder;
  Json files = Json::array(), tensors = Json::array();
  int64_t format = 2;
};

CheckpointFolder::CheckpointFolder(const std::string& dir) {
  if (const auto parent = fs::path(dir).parent_path(); !parent.empty()) make_folder(parent);
  impl_ = std::make_unique<Impl>(dir);
}

CheckpointFolder::~CheckpointFolder() = default;

const fs::path& CheckpointFolder::temporary() const { return impl_->folder.temporary(); }

void CheckpointFolder::write(const RunState& state, const ConfigNode& config) {
  Json values = Json::object();
  for (const auto& [part, content] : state) {
    values.set(part, values_to_json(content.values));
    if (content.tensors.empty()) continue;
    const auto file = part + ".safetensors";
    const NamedTensors tensors(content.tensors.begin(), content.tensors.end());
    std::map<std::string, std::string> metadata = {{"format", "pt"}};
    for (const auto& [alias, name] : aliases_of(content)) metadata.emplace(alias, name);  // as safetensors.torch.save_model does
    impl_->files.push_back(detail::file_entry(file, save_safetensors(temporary() / file, tensors, metadata)));
    for (const auto& [name, tensor] : tensors)
      impl_->tensors.push_back(Json::object({{"name", name}, {"file", file}, {"rank", 0}, {"range", Json::array({0, tensor.numel()})}}));
  }
  impl_->files.push_back(detail::file_entry("state.json", write_file_atomic(temporary() / "state.json", values.dump())));
  impl_->files.push_back(detail::file_entry("config.yaml", write_file_atomic(temporary() / "config.yaml", to_yaml(config))));
}

void CheckpointFolder::add_slices(const std::string& index) {
  const std::string where = "the index of a rank";
  const auto parsed = parse_json(index, where);
  for (const auto& file : parsed.at("files", where).items(where)) {
    const auto path = temporary() / file.at("name", where).text(where);
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    check(!error && static_cast<int64_t>(bytes) == file.at("bytes", where).integer(where), ErrorKind::Checkpoint, detail::kCheckpointWhere,
          path.string(), ": another rank wrote it, and rank 0 does not find it complete; hint: with several ranks output.dir must be on a ",
          "file system that all machines share");
    impl_->files.push_back(file);
  }
  for (const auto& tensor : parsed.at("tensors", where).items(where)) {
    impl_->tensors.push_back(tensor);
    impl_->format = 3;
  }
}

void CheckpointFolder::commit(CheckpointMeta meta, const std::function<void()>& before_commit) {
  meta.format = impl_->format;
  Json manifest;
  for_each_field(meta, [&](const char* key, const auto& value) { manifest.set(key, value); });
  manifest.set("files", std::move(impl_->files));
  manifest.set("tensors", std::move(impl_->tensors));
  write_file_atomic(temporary() / "manifest.json", detail::sealed(manifest));
  if (before_commit) before_commit();
  impl_->folder.commit();
}

void save_checkpoint(const std::string& dir, const RunState& state, const CheckpointMeta& meta, const ConfigNode& config,
                     const std::function<void()>& before_commit) {
  CheckpointFolder folder(dir);
  folder.write(state, config);
  folder.commit(meta, before_commit);
}

std::vector<std::string> class_names_of(const CheckpointMeta& meta) {
  std::vector<std::string> out;
  std::istringstream lines(meta.classes);
  for (std::string line; std::getline(lines, line);) out.push_back(line);
  return out;
}

CheckpointMeta read_checkpoint_meta(const std::string& dir) {
  return detail::reading_checkpoint([&] {
    const auto manifest = detail::read_manifest(dir);
    CheckpointMeta meta;
    for_each_field(meta, FieldReader{manifest, detail::manifest_path(dir)});
    return meta;
  });
}

RunState load_checkpoint(const std::string& dir, const std::vector<std::string>& parts, const ParameterSet& own,
                         const ParameterSet& own_model) {
  return detail::reading_checkpoint([&] {
    const auto wanted = [&](const std::string& part) {
      return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
    };
    const auto manifest = detail::read_manifest(dir);
    detail::SlicedTensors sliced(manifest, detail::manifest_path(dir));
    sliced.select(wanted, own, own_model);
    RunState state;
    // Verifies all files, whether they are read or not, except slices of other ranks.
    const auto needed = [&](const std::string& name) { return !sliced.has_file(name) || sliced.needs_file(name); };
    for_each_file(dir, manifest, needed, [&](const std::string& name, const fs::path& path) {
      if (name == "state.json") {
        const auto document = load_json(path);
        for (const auto& [part, values] : document.members(path.string()))
          if (wanted(part)) state[part].values = values_from_json(values, path.string());
      } else if (sliced.has_file(name)) {
        sliced.read(name, path);
      } else if (fs::path(name).extension() == ".safetensors" && wanted(fs::path(name).stem().string())) {
        auto& tensors = state[fs::path(name).stem().string()].tensors;
        for (auto& [key, tensor] : load_safetensors(path)) tensors.emplace(key, std::move(tensor));
      }
    });
    sliced.give(state);
    return state;
  });
}

ConfigNode load_checkpoint_config(const std::string& dir) {
  return detail::reading_checkpoint([&] {
    ConfigNode config;
    for_each_file(
        dir, detail::read_manifest(dir), [](const std::string& name) { return name == "config.yaml"; },
        [&](const std::string&, const fs::path& path) { config = load_yaml(path.string()); });
    // Permission to run a model's code must come from the user of a checkpoint, not from its author.
    if (auto* model = config.find("model"); model != nullptr && model->is_map()) model->erase("allow_code");
    return config;
  });
}

void verify_checkpoint(const std::string& dir) {
  detail::reading_checkpoint([&] {
    const auto manifest = detail::read_manifest(dir);
    const detail::SlicedTensors complete(manifest, detail::manifest_path(dir));
    for_each_file(
        dir, manifest, [](const std::string&) { return true; }, [](const std::string&, const fs::path&) {});
    detail::check_counters(dir, manifest);
  });
}

}  // namespace npu_train

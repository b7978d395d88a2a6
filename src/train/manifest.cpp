#include "train/manifest.hpp"

#include <set>
#include <string_view>

#include "npu_train/core/hash.hpp"
#include "npu_train/io/checksum.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

// Returns the last member of a manifest: a checksum of all bytes of `text`, which precedes it.
std::string seal_of(std::string_view text) { return ",\n  \"manifest_checksum\": \"" + hex64(hash64(text)) + "\"\n}\n"; }

void check_seal(const std::string& text, const std::string& path) {
  const auto at = text.rfind(",\n  \"manifest_checksum\"");
  check(at != std::string::npos && text.substr(at) == seal_of(std::string_view(text).substr(0, at)), ErrorKind::Checkpoint,
        kCheckpointWhere, path, ": is damaged, its checksum is not that of its content; hint: ", kOlderCheckpoint);
}

// Checks counters and file list before anything is loaded: counters must be in range, and every needed file must be listed once.
void check_content(const Json& manifest, const std::string& path) {
  constexpr int64_t kLargest = int64_t{1} << 53;
  for (const char* key : {"epoch", "global_step", "batches_seen", "serial", "threads"}) {
    const auto value = manifest.at(key, path).integer(path);
    check(value >= 0 && value <= kLargest, ErrorKind::Checkpoint, kCheckpointWhere, path, ": ", key, " is ", value, "; allowed: 0 to ",
          kLargest, "; hint: ", kOlderCheckpoint);
  }
  std::set<std::string> listed;
  for (const auto& file : manifest.at("files", path).items(path)) {
    const auto& name = file.at("name", path).text(path);
    check(listed.insert(name).second, ErrorKind::Checkpoint, kCheckpointWhere, path, ": files lists ", name,
          " twice; hint: ", kOlderCheckpoint);
  }
  std::set<std::string> wanted = {"config.yaml", "state.json"};
  for (const auto& tensor : manifest.at("tensors", path).items(path)) wanted.insert(tensor.at("file", path).text(path));
  for (const auto& name : wanted)
    check(listed.count(name) == 1, ErrorKind::Checkpoint, kCheckpointWhere, path, ": files does not list ", name,
          "; hint: ", kOlderCheckpoint);
}

uint64_t parse_hex64(const std::string& text, const std::string& where) {
  check(text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos, ErrorKind::Checkpoint, kCheckpointWhere,
        where, ": a checksum is damaged; hint: ", kOlderCheckpoint);
  return std::stoull(text, nullptr, 16);
}

}  // namespace

std::string manifest_path(const std::string& dir) { return (fs::path(dir) / "manifest.json").string(); }

std::string sealed(const Json& manifest) {
  auto text = manifest.dump();
  text.resize(text.rfind("\n}"));
  return text + seal_of(text);
}

Json read_manifest(const std::string& dir) {
  // Checks the format first, because a newer manifest may differ in every other respect.
  const auto path = manifest_path(dir);
  check(fs::is_regular_file(path), ErrorKind::Checkpoint, kCheckpointWhere, dir,
        ": is no complete checkpoint, it has no manifest.json; hint: ", kOlderCheckpoint);
  const auto text = read_file(path, JsonLimits{}.max_bytes, ErrorKind::Checkpoint);
  auto manifest = parse_json(text, path);
  const auto* format = manifest.find("format");
  check(format != nullptr && format->integer(path) >= 1, ErrorKind::Checkpoint, kCheckpointWhere, path,
        ": is no manifest of npu_train; hint: ", kOlderCheckpoint);
  check(format->integer(path) <= kCheckpointFormat, ErrorKind::Checkpoint, kCheckpointWhere, path, ": has format ", format->integer(path),
        "; this version reads up to ", kCheckpointFormat, "; hint: use the npu_train that wrote it, or a newer one");
  if (format->integer(path) >= 2) check_seal(text, path);
  check_content(manifest, path);
  return manifest;
}

void check_counters(const std::string& dir, const Json& manifest) {
  const auto where = manifest_path(dir);
  if (manifest.at("format", where).integer(where) >= 2) return;
  const auto path = (fs::path(dir) / "state.json").string();
  const auto document = load_json(path);
  const auto* loop = document.find("loop");
  for (const char* key : {"epoch", "global_step", "batches_seen"}) {
    const auto* value = loop != nullptr ? loop->find(key) : nullptr;
    if (value == nullptr) continue;
    check(value->integer(path) == manifest.at(key, where).integer(where), ErrorKind::Checkpoint, kCheckpointWhere, where, ": ", key, " is ",
          manifest.at(key, where).integer(where), ", in state.json it is ", value->integer(path), "; hint: ", kOlderCheckpoint);
  }
}

Json file_entry(const std::string& name, const WrittenFile& written) {
  return Json::object({{"name", name}, {"bytes", static_cast<int64_t>(written.bytes)}, {"checksum", hex64(written.checksum)}});
}

fs::path verified_path(const std::string& dir, const Json& file) {
  const auto where = manifest_path(dir);
  const auto path = safe_join(dir, file.at("name", where).text(where));
  check(fs::is_regular_file(path), ErrorKind::Checkpoint, kCheckpointWhere, path.string(),
        ": is missing; the manifest lists it; hint: ", kOlderCheckpoint);
  verify_file(path.string(), static_cast<uint64_t>(file.at("bytes", where).integer(where)),
              parse_hex64(file.at("checksum", where).text(where), where));
  return path;
}

}  // namespace npu_train::detail

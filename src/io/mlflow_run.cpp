#include "npu_train/io/mlflow_run.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "io/temporary_name.hpp"
#include "npu_train/core/append_file.hpp"
#include "npu_train/core/config_node.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/random_hex.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "mlflow";
constexpr const char* kMeta = "meta.yaml";
constexpr const char* kTrash = ".trash";
constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. /";
// Limits of MLflow. MLflow counts characters; these limits count bytes, so that they hold for every text.
constexpr size_t kLongestName = 250, kLongestParam = 6000, kLongestTag = 5000;

// Returns valid UTF-8, because a single invalid byte in a value would make the complete run unreadable to MLflow.
std::string readable(std::string_view text) { return detail::visible_lines(text); }

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns a YAML scalar with this text: in double quotes, with the escapes of JSON.
std::string yaml_text(std::string_view text) { return Json(detail::visible_text(text)).dump(0); }

// Cuts a text after at most `bytes` bytes, at the end of a character of UTF-8.
std::string_view cut_text(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0u) == 0x80u) --bytes;
  return text.substr(0, bytes);
}

// Returns the absolute path, without a '/' at its end.
fs::path store_folder(const fs::path& store) {
  const auto path = fs::absolute(store).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// Returns "file:///data/my%20runs/mlruns", as Path.as_uri() of Python does.
std::string uri_of(const fs::path& path) {
  std::string out = "file://";
  for (const unsigned char c : path.string()) {
    if (c != ' ' && (c == '~' || kPlain.find(static_cast<char>(c)) != std::string_view::npos))
      out += static_cast<char>(c);
    else
      out += std::string{'%', "0123456789ABCDEF"[c >> 4], "0123456789ABCDEF"[c & 15]};
  }
  return out;
}

// Replaces `path` in one step. The temporary file is in `beside`, where MLflow reads only folders; in metrics/, params/ and tags/, MLflow
// reads each file as a value. Durability::Synced is for files that MLflow rejects if a crash of the machine leaves them empty.
void place(const fs::path& path, const fs::path& beside, std::string_view content, Durability durability = Durability::Renamed) {
  make_folder(path.parent_path());
  const auto temporary = detail::temporary_beside(beside / "new");
  try {
    AtomicFile file(temporary, durability);
    file.write(content);
    file.commit();
    fs::rename(temporary, path);
  } catch (const std::exception& e) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw Error(ErrorKind::Checkpoint, kWhere, path.string() + ": cannot be written: " + e.what());
  }
}

// The content of meta.yaml.
struct Meta {
  ConfigNode node;
  // Returns "" for a key without a text.
  std::string text(const char* key) const {
    const auto* value = node.find(key);
    return value != nullptr && value->is_scalar() ? value->scalar() : "";
  }
};

// Returns nullopt if there is no readable file.
std::optional<Meta> read_meta(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder / kMeta, error)) return std::nullopt;
  try {
    return Meta{load_yaml((folder / kMeta).string())};
  } catch (const Error&) {  // MLflow cannot read such a file either
    return std::nullopt;
  }
}

// Returns the folder of the experiment `name` in `parent`, which is the store or its .trash; "" if there is none. Ignores, as MLflow does,
// an experiment whose number is not the name of its folder, such as a copy.
fs::path find_experiment(const fs::path& parent, const std::string& name) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(parent, ignored))
    if (const auto meta = item.is_directory(ignored) ? read_meta(item.path()) : std::nullopt;
        meta && meta->text("name") == name && meta->text("experiment_id") == item.path().filename().string())
      found.push_back(item.path());
  return found.empty() ? fs::path() : *std::min_element(found.begin(), found.end());
}

void write_experiment(const fs::path& folder, const std::string& name) {
  make_folder(folder);
  const auto time = now_ms();
  place(folder / kMeta, folder,
        str_cat("artifact_location: ", yaml_text(uri_of(folder)), "\ncreation_time: ", time, "\nexperiment_id: '",
                folder.filename().string(), "'\nlast_update_time: ", time, "\nlifecycle_stage: active\nname: ", yaml_text(name), "\n"),
        Durability::Synced);
}

// Returns the folder of the experiment `name`, which is created if it is missing.
fs::path experiment_folder(const fs::path& store, const std::string& name) {
  if (!fs::exists(store)) {  // creates what MLflow creates in a new store
    make_folder(store / kTrash);
    if (name != "Default") write_experiment(store / "0", "Default");
  }
  if (auto found = find_experiment(store, name); !found.empty()) return found;
  const auto deleted = find_experiment(store / kTrash, name);
  check(deleted.empty(), ErrorKind::Checkpoint, kWhere, "the experiment '", name, "' of ", store.string(),
        " is deleted; hint: mlflow experiments restore -x ", deleted.filename().string(), ", or choose another name: experiment of ",
        "the logger mlflow");
  for (uint64_t attempt = 0;; ++attempt) {  // an experiment that was renamed keeps the number of its former name
    const auto number = uint64_t{100'000'000'000'000'000} + hash64(name.data(), name.size(), attempt) % 900'000'000'000'000'000;
    const auto folder = store / (name == "Default" && attempt == 0 ? "0" : std::to_string(number));
    if (fs::exists(store / kTrash / folder.filename())) continue;
    const auto meta = read_meta(folder);
    if (meta && meta->text("name") != name) continue;
    if (!meta) write_experiment(folder, name);
    return folder;
  }
}

std::string user_name() {
  for (const char* variable : {"LOGNAME", "USER"})
    if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') return value;
  return "unknown";
}

// Returns whether a text has the form of the ids that MLflow gives to experiments and runs, so that it is the name of one folder.
bool is_id(const std::string& text) {
  return !text.empty() && text.size() <= 64 && kPlain.find(text[0]) < 62 &&
         text.find_first_not_of(kPlain.substr(0, kPlain.find('.'))) == std::string::npos;
}

// Returns the URI of a run's artifacts, given the URI `experiment` of its experiment's artifacts.
std::string artifacts_of(std::string experiment, const std::string& run) {
  while (experiment.ends_with('/')) experiment.pop_back();
  return experiment + "/" + run + "/artifacts";
}

// Sets the line `key: value` in a YAML file in block style, the style in which MLflow writes.
void set_line(std::string& text, const std::string& key, const std::string& value) {
  const auto line = key + ": " + value + "\n";
  if (!text.ends_with('\n')) text += '\n';
  text.insert(0, "\n");
  const auto found = text.find("\n" + key + ":");
  const auto begin = found == std::string::npos ? text.size() : found + 1;
  const auto end = found == std::string::npos ? text.size() : text.find('\n', begin) + 1;
  text.replace(begin, end - begin, line).erase(0, 1);
}

// Returns those lines `time value step` of a metric's file whose step is before `end`.
std::string lines_before(int64_t end, const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const auto stop = text.find('\n', begin);
    if (stop == std::string::npos) break;  // a line that a crash of the machine truncated
    const auto line = std::string_view(text).substr(begin, stop - begin);
    const auto step = whole_number(line.substr(line.rfind(' ') + 1));
    if (step && *step < end) out.append(line).append("\n");
    begin = stop + 1;
  }
  return out;
}

}  // namespace

std::string mlflow_name(std::string_view name) {
  std::string out;
  for (size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    if (begin > 0) out += '/';
    const bool moves = part.empty() || part == "." || part.starts_with("..");
    for (const char c : moves ? std::string_view("_") : part) out += kPlain.find(c) == std::string_view::npos ? '_' : c;
    begin = end + 1;
  }
  if (out == name && out.size() <= kLongestName) return out;
  const auto hash = "_" + hex64(hash64(name)).substr(0, 8);
  auto start = out.substr(0, kLongestName - hash.size());
  while (start.ends_with('/')) start.pop_back();
  return start + hash;
}

MlflowRun MlflowRun::create(const fs::path& store, const std::string& experiment, const std::string& name) {
  return translated(kWhere, [&] {
    constexpr size_t kLongestExperiment = 500;
    const auto shown = detail::visible_text(experiment);
    const auto parent = experiment_folder(store_folder(store), std::string(cut_text(shown, kLongestExperiment)));
    const MlflowRunId id{parent.filename().string(), random_hex(16)};
    const auto meta = read_meta(parent);
    const auto location = meta ? meta->text("artifact_location") : "";
    const bool here = location.empty() || location == uri_of(parent);
    const auto folder = parent / id.run;
    for (const char* part : {"metrics", "params", "tags", "artifacts"}) make_folder(folder / part);
    MlflowRun out(folder, id, here);
    out.set_tag("mlflow.runName", name);
    out.set_tag("mlflow.user", user_name());
    out.set_tag("mlflow.source.type", "LOCAL");
    // Writes this file last, because a folder without it is not a run.
    place(folder / kMeta, folder,
          str_cat("artifact_uri: ", yaml_text(artifacts_of(here ? uri_of(parent) : location, id.run)),
                  "\ndeleted_time: null\nend_time: null\nentry_point_name: ''\nexperiment_id: '", id.experiment,
                  "'\nlifecycle_stage: active\nrun_id: '", id.run, "'\nrun_name: ", yaml_text(name), "\nrun_uuid: '", id.run,
                  "'\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: ", now_ms(),
                  "\nstatus: 1\ntags: []\nuser_id: ", yaml_text(user_name()), "\n"),
          Durability::Synced);
    return out;
  });
}

std::optional<MlflowRun> MlflowRun::reopen(const fs::path& store, const MlflowRunId& id) {
  if (!is_id(id.experiment) || !is_id(id.run)) return std::nullopt;
  return translated(kWhere, [&]() -> std::optional<MlflowRun> {
    const auto parent = store_folder(store) / id.experiment;
    const auto meta = read_meta(parent / id.run);
    if (!meta || meta->text("lifecycle_stage") != "active") return std::nullopt;
    remove_leftovers(parent / id.run);
    return MlflowRun(parent / id.run, id, meta->text("artifact_uri") == artifacts_of(uri_of(parent), id.run));
  });
}

bool MlflowRun::set_param(std::string_view name, std::string_view value) {
  const auto path = folder_ / "params" / mlflow_name(name);
  const auto whole = readable(value);
  const auto start = cut_text(whole, kLongestParam);
  std::error_code error;
  if (!fs::exists(path, error)) place(path, folder_, start);
  return start.size() == whole.size();
}

void MlflowRun::set_tag(std::string_view name, std::string_view value) {
  place(folder_ / "tags" / mlflow_name(name), folder_, cut_text(readable(value), kLongestTag));
}

std::string MlflowRun::tag(std::string_view name) const {
  const auto path = folder_ / "tags" / mlflow_name(name);
  std::error_code error;
  return fs::is_regular_file(path, error) ? read_file(path, kLongestTag, ErrorKind::Checkpoint) : "";
}

bool MlflowRun::put_artifact(const std::string& file, std::string_view content) {
  if (artifacts_are_here_) place(safe_join(folder_ / "artifacts", file), folder_, content);
  return artifacts_are_here_;
}

void MlflowRun::log_metric(std::string_view name, double value, int64_t step) {
  const auto file = mlflow_name(name);
  const auto path = folder_ / "metrics" / file;
  const auto line = str_cat(now_ms(), ' ', shortest(value), ' ', step, '\n');
  std::error_code error;
  const bool there = fs::exists(path, error);
  const bool replace = replace_from_ && logged_.count(file) == 0;
  if (there && !replace) {
    AppendFile(path.string()).write(line);
  } else {  // writes the file in one step, because a metric without a value is an error in MLflow
    constexpr uint64_t kLargest = uint64_t{1} << 30;
    place(path, folder_, (there ? lines_before(*replace_from_, read_file(path, kLargest, ErrorKind::Checkpoint)) : "") + line,
          Durability::Synced);
  }
  logged_.insert(file);
}

void MlflowRun::set_status(MlflowStatus status) {
  constexpr uint64_t kLargest = uint64_t{1} << 22;
  auto text = read_file(folder_ / kMeta, kLargest, ErrorKind::Checkpoint);
  set_line(text, "status", std::to_string(static_cast<int>(status)));
  set_line(text, "end_time", status == MlflowStatus::Running ? "null" : std::to_string(now_ms()));
  place(folder_ / kMeta, folder_, text, Durability::Synced);
}

}  // namespace npu_train

#include "npu_train/train/checkpoint_store.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/folder.hpp"
#include "train/host_copy.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;
constexpr const char* kStore = "CheckpointStore";
constexpr int64_t kLargestSerial = int64_t{1} << 53;  // largest value in a manifest

bool is_checkpoint(const fs::path& path) { return fs::exists(path / "manifest.json"); }

std::string folder_name(const CheckpointMeta& meta) {
  return printed("epoch=%03lld-step=%lld", static_cast<long long>(meta.epoch), static_cast<long long>(meta.global_step));
}

}  // namespace

struct CheckpointStore::Entry {
  std::string path;
  CheckpointMeta meta;
};

CheckpointStore::CheckpointStore(std::string dir, CheckpointOptions options) : dir_(std::move(dir)), options_(std::move(options)) {
  check_limits(options_, "checkpoint");
}

std::vector<CheckpointStore::Entry> CheckpointStore::entries() const {
  std::vector<Entry> out;
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(dir_, ignored)) {
    const auto name = item.path().filename().string();
    if (item.is_symlink() || !item.is_directory() || name == "diverged" || name.starts_with(".")) continue;
    try {
      out.push_back({item.path().string(), read_checkpoint_meta(item.path().string())});
    } catch (const Error& e) {
      warn_once("checkpoint " + item.path().string(), str_cat("passing over ", item.path().string(), ": ", e.what()));
    }
  }
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.meta.serial, a.meta.batches_seen) > std::pair(b.meta.serial, b.meta.batches_seen);
  });
  return out;
}

std::string CheckpointStore::link(const std::string& name) const {
  const auto path = fs::path(dir_) / name;
  std::error_code error;
  const auto target = fs::read_symlink(path, error);
  if (error || target.has_parent_path()) return "";  // rejects a target outside the folder
  const auto full = fs::path(dir_) / target;
  return is_checkpoint(full) ? full.string() : "";
}

int CheckpointStore::remove_leftovers() const {
  int removed = npu_train::remove_leftovers(dir_, [](std::string_view) { return true; });
  // Includes links under construction by older versions, which named them ".last.<process>".
  std::vector<fs::path> links;
  std::error_code error;
  for (const auto& item : fs::directory_iterator(dir_, error)) {
    const auto name = item.path().filename().string();
    const auto at = name.starts_with(".last.") || name.starts_with(".best.") ? 6 : name.size();
    if (item.is_symlink() && at < name.size() && name.find_first_not_of("0123456789", at) == std::string::npos)
      links.push_back(item.path());
  }
  for (const auto& link : links) removed += fs::remove(link, error) ? 1 : 0;
  return removed;
}

CheckpointStore::~CheckpointStore() {
  try {
    finish();
  } catch (const std::exception& e) {
    log_warning("a checkpoint could not be written: ", e.what());
  }
}

std::string CheckpointStore::save(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config) {
  wait();
  return write(state, meta, config);
}

void CheckpointStore::save_later(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config) {
  check(!under_way_.valid(), ErrorKind::Usage, kStore, "a save is under way; hint: finish() comes between two");
  detail::copy_to_host(state, copy_);
  under_way_ = std::async(std::launch::async, [this, meta, config, run = log_run()] {
    const ScopedLogRun scope(run);
    return write(copy_, meta, config);
  });
}

void CheckpointStore::wait() const {
  if (under_way_.valid()) under_way_.wait();
}

std::string CheckpointStore::finish(bool wait) {
  if (!under_way_.valid()) return "";
  if (!wait && under_way_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return "";
  return under_way_.get();
}

std::string CheckpointStore::path_of(const CheckpointMeta& meta) const { return (fs::path(dir_) / folder_name(meta)).string(); }

std::string CheckpointStore::diverged_path() const { return (fs::path(dir_).parent_path() / "diverged").string(); }

std::unique_ptr<CheckpointFolder> CheckpointStore::open(const CheckpointMeta& meta) const {
  return std::make_unique<CheckpointFolder>(path_of(meta));
}

std::string CheckpointStore::commit(CheckpointFolder& folder, const CheckpointMeta& meta) const {
  const auto before = entries();
  auto numbered = meta;
  numbered.serial = before.empty() ? 1 : std::min(before.front().meta.serial + 1, kLargestSerial);
  folder.commit(numbered, before_commit_);
  const auto path = path_of(meta);
  rotate(path);
  return path;
}

std::string CheckpointStore::save_diverged(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config) {
  const auto folder = open_diverged();
  folder->write(state, config);
  return commit_diverged(*folder, meta);
}

std::unique_ptr<CheckpointFolder> CheckpointStore::open_diverged() const { return std::make_unique<CheckpointFolder>(diverged_path()); }

std::string CheckpointStore::commit_diverged(CheckpointFolder& folder, const CheckpointMeta& meta) const {
  folder.commit(meta, before_commit_);
  return diverged_path();
}

std::string CheckpointStore::write(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config) const {
  const auto folder = open(meta);
  folder->write(state, config);
  return commit(*folder, meta);
}

void CheckpointStore::rotate(const std::string& newest) const {
  auto all = entries();
  const auto monitor = read_checkpoint_meta(newest).monitor;
  std::vector<Entry> scored;
  for (const auto& e : all)
    if (std::isfinite(e.meta.score) && e.meta.monitor == monitor) scored.push_back(e);
  const bool larger = larger_is_better(monitor, options_.mode);
  std::stable_sort(scored.begin(), scored.end(),
                   [larger](const Entry& a, const Entry& b) { return larger ? a.meta.score > b.meta.score : a.meta.score < b.meta.score; });
  if (options_.save_top_k == 0) scored.clear();
  if (!scored.empty()) set_link(fs::path(dir_) / "best", fs::path(scored.front().path).filename());
  if (options_.save_last) set_link(fs::path(dir_) / "last", fs::path(newest).filename());
  if (options_.save_top_k < 0) return;

  if (static_cast<int64_t>(scored.size()) > options_.save_top_k) scored.resize(static_cast<size_t>(options_.save_top_k));
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& e = all[i];
    const bool kept = static_cast<int64_t>(i) < newest_kept_ || e.path == newest || e.path == best() ||
                      std::any_of(scored.begin(), scored.end(), [&](const Entry& s) { return s.path == e.path; });
    if (kept) continue;
    try {
      remove_folder(e.path);
    } catch (const Error& error) {
      log_warning("an old checkpoint stays: ", error.what());
    }
  }
}

std::vector<std::string> CheckpointStore::newest(int64_t count) const {
  wait();
  std::vector<std::string> out;
  for (const auto& e : entries())
    if (static_cast<int64_t>(out.size()) < count) out.push_back(e.path);
  return out;
}

std::string CheckpointStore::newest_valid() const {
  wait();
  // Uses the order of saving. The link `last` may be out of date, because a process may have been killed before it updated the link. The
  // number of steps gives no order, because a run that returned to an older checkpoint has left checkpoints with more steps on the disk.
  for (const auto& e : entries()) {
    try {
      verify_checkpoint(e.path);
      return e.path;
    } catch (const Error& error) {
      log_warning("passing over a damaged checkpoint: ", error.what());
    }
  }
  return "";
}

std::string CheckpointStore::resolve(const std::string& which) const { return which == "auto" ? newest_valid() : link(which); }

namespace {

// Returns a phrase such as " by val/acc1"; "" if the monitor is not known, as for a damaged checkpoint.
std::string by_monitor(const std::string& checkpoint) {
  try {
    const auto monitor = read_checkpoint_meta(checkpoint).monitor;
    return monitor.empty() ? "" : " by " + monitor;
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

FoundCheckpoint choose_checkpoint(const std::string& path) {
  check(fs::exists(path), ErrorKind::Checkpoint, kStore, path, ": there is no such checkpoint");
  if (is_checkpoint(path)) return {fs::canonical(path).string(), "given by its path"};
  for (const char* kind : {"last", "best"})
    for (const auto& folder : {fs::path(path), fs::path(path) / "checkpoints"}) {
      if (!is_checkpoint(folder / kind)) continue;
      FoundCheckpoint out{fs::canonical(folder / kind).string(), std::string("the ") + kind + " of this run"};
      if (!is_checkpoint(folder / "best")) return out;
      const auto best = fs::canonical(folder / "best");
      const auto by = by_monitor(best.string());
      out.why += best == out.path ? "; it is also the best" + by : "; the best" + by + " is " + best.filename().string();
      if (std::string_view(kind) == "best") out.why = "the best of this run" + by + ", which has no last one";
      return out;
    }
  throw Error(ErrorKind::Checkpoint, kStore, path + ": holds no checkpoint",
              "give a folder with a manifest.json, the checkpoints/ folder above it, or the run's folder");
}

std::string find_checkpoint(const std::string& path) { return choose_checkpoint(path).path; }

}  // namespace npu_train

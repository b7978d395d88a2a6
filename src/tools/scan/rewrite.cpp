#include "npu_train/tools/scan/rewrite.hpp"

#include <algorithm>
#include <fstream>

#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json_texts.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "npu_train/tools/scan/scan_report.hpp"
#include "tools/scan/counted.hpp"
#include "tools/scan/project.hpp"
#include "tools/scan/rewrite_report.hpp"

namespace npu_train {

using namespace detail::scan;
using detail::visible_text;
namespace fs = std::filesystem;

namespace {

constexpr const char* kWhere = "rewrite";
constexpr size_t kLeftOut = 100;

bool contains(const fs::path& folder, const fs::path& path) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

// Returns the folder of the copy, with links in its name resolved.
fs::path target_folder(const fs::path& root, fs::path out) {
  if (!out.has_filename()) out = out.parent_path();  // "a/b/"
  check(!out.empty(), ErrorKind::Usage, kWhere, "there is no folder for the copy; hint: --rewrite OUT");
  std::error_code error;
  const auto target = fs::weakly_canonical(fs::absolute(out), error);
  check(!error, ErrorKind::Usage, kWhere, out.string(), ": ", error.message());
  check(!contains(root, target) && !contains(target, root), ErrorKind::Usage, kWhere, "the project ", root.string(), " and the copy ",
        target.string(), " must not contain each other; hint: give a folder next to the project");
  if (fs::exists(target, error)) {
    check(fs::is_directory(target, error), ErrorKind::Usage, kWhere, target.string(),
          ": exists and is not a folder; hint: give another name");
    check(fs::is_empty(target, error) && !error, ErrorKind::Usage, kWhere, target.string(),
          ": exists and is not empty; existing files are not overwritten; hint: give another name");
  }
  return target;
}

class Copy {
 public:
  Copy(fs::path root, fs::path to, Rewrite& out) : root_(std::move(root)), to_(std::move(to)), out_(out) {}

  void run(const std::vector<WalkEntry>& entries, const ScanOptions& options, RewriteLog& log) {
    const Facts facts;
    const LocalModules modules(entries, root_.filename().string());
    for (const auto& entry : entries) {
      switch (entry.kind) {
        case WalkEntry::Kind::Folder:
          make_folder(to_ / entry.path);
          break;
        case WalkEntry::Kind::Link:
          link(entry);
          break;
        case WalkEntry::Kind::Other:
          leave_out(entry.path + ": not a regular file");
          break;
        case WalkEntry::Kind::File:
          ++out_.files;
          if (entry.skipped || !rewritten(entry, facts, modules, options, log)) copy(entry);
      }
    }
    // Last and from the inside out: a folder without write permission cannot be filled afterwards.
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)
      if (entry->kind == WalkEntry::Kind::Folder) take_mode(*entry);
  }

 private:
  bool rewritten(const WalkEntry& entry, const Facts& facts, const LocalModules& modules, const ScanOptions& options, RewriteLog& log) {
    SourceFile file;
    std::string why;
    if (read_source(root_, entry, options.max_file_bytes, file, why) != ReadResult::Source) return false;
    const auto hits = scan_file(facts, file, [&](std::string_view name) { return modules.is_local(file.path, name); });
    const auto changes = std::count_if(hits.begin(), hits.end(), [](const Hit& hit) { return !hit.edits.empty(); });
    if (changes == 0) return false;
    write(entry, edited(file.text, hits));
    take_mode(entry);
    log.add(file, hits);
    out_.changes += changes;
    ++out_.files_changed;
    return true;
  }

  // The folder appears atomically, so its files need no temporary names, for which long names would leave no space.
  void write(const WalkEntry& entry, std::string_view content) {
    std::ofstream file(to_ / entry.path, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    check(!file.fail(), ErrorKind::Checkpoint, kWhere, (to_ / entry.path).string(), ": ", content.size(), " bytes cannot be written");
  }

  void copy(const WalkEntry& entry) {
    const ReadableFile readable(root_ / entry.path);  // throws, with the reason, if it cannot be read
    std::error_code error;
    fs::copy_file(root_ / entry.path, to_ / entry.path, error);
    check(!error, ErrorKind::Checkpoint, kWhere, "cannot write ", (to_ / entry.path).string(), ": ", error.message());
    take_mode(entry);
  }

  void take_mode(const WalkEntry& entry) {
    std::error_code error;
    const auto mode = fs::status(root_ / entry.path, error).permissions() & fs::perms::all;
    if (!error) fs::permissions(to_ / entry.path, mode, error);
    check(!error, ErrorKind::Checkpoint, kWhere, "cannot set the mode of ", (to_ / entry.path).string(), ": ", error.message());
  }

  // Recreates a relative link to a target inside the project, even if the target does not exist.
  void link(const WalkEntry& entry) {
    std::error_code error;
    const auto place = root_ / entry.path;
    const auto target = fs::read_symlink(place, error);
    if (error) return leave_out(entry.path + ": a link that cannot be read");
    if (target.is_absolute()) return leave_out(entry.path + ": a link to an absolute path");
    const auto end = fs::weakly_canonical(place.parent_path() / target, error);
    if (error) return leave_out(entry.path + ": a circular link");
    if (!contains(root_, end)) return leave_out(entry.path + ": a link that leads out of the project");
    fs::create_symlink(target, to_ / entry.path, error);
    check(!error, ErrorKind::Checkpoint, kWhere, (to_ / entry.path).string(), ": the link cannot be created: ", error.message());
  }

  void leave_out(const std::string& text) {
    if (out_.left_out.size() < kLeftOut) out_.left_out.push_back(visible_text(text));
    if (out_.left_out.size() == kLeftOut) out_.left_out.back() = "further entries are omitted";
  }

  fs::path root_, to_;
  Rewrite& out_;
};

}  // namespace

Rewrite rewrite_source(const fs::path& folder, const fs::path& out_folder, const ScanOptions& options) {
  const auto root = source_folder(folder);
  const auto target = target_folder(root, out_folder);
  std::error_code ignored;
  check(!fs::exists(fs::symlink_status(root / kReportFolder, ignored)) || is_report(root / kReportFolder), ErrorKind::Data, kWhere,
        (root / kReportFolder).string(), ": has the name of a rewrite's report, but is not one; hint: rename it first");
  std::vector<std::string> unreadable;
  const auto entries = walk(root, {.max_entries = options.max_files, .into_skipped = true}, unreadable);
  check(unreadable.empty(), ErrorKind::Data, kWhere, root.string(),
        ": cannot be read completely: ", visible_text(unreadable.empty() ? "" : unreadable[0]));
  if (target.has_parent_path()) make_folder(target.parent_path());
  Rewrite out;
  out.source = visible_text(folder.string());
  out.out = visible_text(target.string());
  AtomicDirectory copy(target);
  make_folder(copy.temporary() / kReportFolder);
  RewriteLog log(copy.temporary() / kReportFolder, out.source);
  Copy(root, copy.temporary(), out).run(entries, options, log);
  log.finish(out);
  auto remaining = options;
  remaining.serves_npu = !scan_source(folder, options).serves_npu.empty();
  out.remaining = scan_source(copy.temporary(), remaining);
  out.remaining.source = out.out;
  write_file_atomic(copy.temporary() / kReportFolder / "todo.md", todo_text(out));
  copy.commit();
  return out;
}

Report report_of(const Rewrite& rewrite) {
  Report out("Rewrite of " + rewrite.source, Json::object({{"source", rewrite.source},
                                                           {"out", rewrite.out},
                                                           {"files", rewrite.files},
                                                           {"files_changed", rewrite.files_changed},
                                                           {"changes", rewrite.changes},
                                                           {"left_out", detail::json_texts(rewrite.left_out)},
                                                           {"remaining", to_json(rewrite.remaining)}}));
  out.verdict(rewrite.out + ": " + counted(rewrite.changes, "change") + " in " + counted(rewrite.files_changed, "file") + " of " +
              with_commas(rewrite.files) + "; remaining: " + headline(rewrite.remaining));
  out.remarks("not copied", rewrite.left_out);
  out.say(std::string(kReportFolder) + "/: log.json (every change), changes.diff (for patch -p1), todo.md (the remaining manual changes)");
  return out;
}

}  // namespace npu_train

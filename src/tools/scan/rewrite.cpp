#include "npu_train/tools/scan/rewrite.hpp"

#include <algorithm>
#include <fstream>

#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "npu_train/tools/scan/source_scan.hpp"
#include "tools/scan/counted.hpp"
#include "tools/scan/facts/npu_distributed.hpp"
#include "tools/scan/facts/run_distributed.hpp"
#include "tools/scan/project.hpp"
#include "tools/scan/rewrite_report.hpp"

namespace npu_train {

using namespace detail::scan;
using detail::visible_text;
namespace fs = std::filesystem;

namespace {

constexpr const char* kWhere = "rewrite";
constexpr size_t kLeftOut = 100;
constexpr const char* kLauncher = "run_distributed.sh";
constexpr const char* kRankFile = "npu_distributed.py";

// Returns the reason why one process per NPU cannot replace DataParallel; "" if it can.
std::string not_distributed(const SourceScan& scan) {
  if (!scan.starts_ranks.empty()) return "the project starts its own processes (" + scan.starts_ranks + ")";
  const auto in_python = [](const SourceFinding& f) { return f.rule == "data-parallel" && f.file.ends_with(".py"); };
  const bool any = std::any_of(scan.findings.begin(), scan.findings.end(), in_python);
  return any ? "" : "no Python file uses torch.nn.DataParallel";
}

// Returns `text` with each occurrence of `what` replaced by `by`.
std::string with(std::string_view text, std::string_view what, const std::string& by) {
  std::string out(text);
  for (size_t at = out.find(what); at != std::string::npos; at = out.find(what, at + by.size())) out.replace(at, what.size(), by);
  return out;
}

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
  Copy(fs::path root, fs::path to, bool ranks, Rewrite& out) : root_(std::move(root)), to_(std::move(to)), ranks_(ranks), out_(out) {}

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
    if (ranks_) add_ranks(log);
    // Sets permissions last and from the inside out: a folder without write permission cannot be filled afterwards.
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)
      if (entry->kind == WalkEntry::Kind::Folder) take_mode(*entry);
  }

 private:
  bool rewritten(const WalkEntry& entry, const Facts& facts, const LocalModules& modules, const ScanOptions& options, RewriteLog& log) {
    SourceFile file;
    std::string why;
    if (read_source(root_, entry, options.max_file_bytes, file, why) != ReadResult::Source) return false;
    const auto hits = scan_file(
        facts, file, [&](std::string_view name) { return modules.is_local(file.path, name); }, ranks_);
    if (ranks_) {
      note_program(file, hits);
      note_by_hand(file, hits);
    }
    const auto changes = std::count_if(hits.begin(), hits.end(), [](const Hit& hit) { return !hit.edits.empty(); });
    if (changes == 0) return false;
    write(entry, edited(file.text, hits));
    take_mode(entry);
    log.add(file, hits);
    out_.changes += changes;
    ++out_.files_changed;
    return true;
  }

  // Collects candidates for the program that starts the training: programs with DataParallel, other programs, and files with DataParallel
  // at the top of the project.
  void note_program(const SourceFile& file, const std::vector<Hit>& hits) {
    if (file.language != Language::Python) return;
    const bool program = file.text.find("__main__") != std::string::npos;
    const bool parallel = std::any_of(hits.begin(), hits.end(), [](const Hit& hit) { return hit.rule->id == "data-parallel"; });
    if (program) (parallel ? programs_ : other_programs_).push_back(file.path);
    if (!program && parallel && file.path.find('/') == std::string::npos) scripts_.push_back(file.path);
  }

  // Returns the line, from 1, in the copy for the place `at` in the original.
  static int64_t line_of_copy(std::string_view text, const std::vector<Hit>& hits, uint32_t at) {
    auto line = 1 + std::count(text.begin(), text.begin() + at, '\n');
    for (const auto& hit : hits)
      for (const auto& edit : hit.edits)
        if (edit.begin <= at) line += std::count(edit.text.begin(), edit.text.end(), '\n');
    return line;
  }

  void note_by_hand(const SourceFile& file, const std::vector<Hit>& hits) {
    constexpr size_t kShown = 80;
    for (const auto& hit : hits) {
      if (!hit.edits.empty() || (hit.rule->id != "ranks" && hit.rule->id != "data-parallel")) continue;
      const auto text = std::string_view(file.text).substr(hit.begin, hit.length);
      if (out_.by_hand.size() < kLeftOut)
        out_.by_hand.push_back(visible_text(file.path) + ":" + std::to_string(line_of_copy(file.text, hits, hit.begin)) + ": " +
                               detail::visible_start(text, kShown) + (hit.advice.empty() ? "" : ": " + std::string(hit.advice)));
      else
        out_.by_hand.back() = "further places are omitted";
    }
  }

  // Adds the module and the launcher that ranks need to the copy.
  void add_ranks(RewriteLog& log) {
    const auto& found = !programs_.empty() ? programs_ : !other_programs_.empty() ? other_programs_ : scripts_;
    const bool known = found.size() == 1 && found[0].find_first_of("\"\\$`'\n") == std::string::npos;
    auto launcher = with(facts::run_distributed, "@SCRIPT@", known ? "" : "SCRIPT ");
    launcher = with(launcher, "@PROGRAM@", known ? "\"$here/" + found[0] + "\" " : "");
    for (const auto& [name, text] : {std::pair(kRankFile, std::string(facts::npu_distributed)), std::pair(kLauncher, launcher)}) {
      write({.path = name}, text);
      log.add_file(name, text);
      ++out_.files;
      ++out_.files_changed;
    }
    fs::permissions(to_ / kLauncher, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec, fs::perm_options::add);
    out_.launcher = kLauncher;
  }

  // Writes a file directly. A temporary file would have a longer name, which may exceed the limit of the file system. The complete folder
  // appears atomically.
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
  bool ranks_;
  Rewrite& out_;
  std::vector<std::string> programs_, other_programs_, scripts_;  // candidates for the program that the launcher starts
};

}  // namespace

Rewrite rewrite_source(const fs::path& folder, const fs::path& out_folder, const RewriteOptions& options) {
  const auto root = source_folder(folder);
  const auto target = target_folder(root, out_folder);
  std::error_code ignored;
  check(!fs::exists(fs::symlink_status(root / kReportFolder, ignored)) || is_report(root / kReportFolder), ErrorKind::Data, kWhere,
        (root / kReportFolder).string(), ": has the name of a rewrite's report, but is not one; hint: rename it first");
  std::vector<std::string> unreadable;
  const auto entries = walk(root, {.max_entries = options.scan.max_files, .into_skipped = true}, unreadable);
  check(unreadable.empty(), ErrorKind::Data, kWhere, root.string(),
        ": cannot be read completely: ", visible_text(unreadable.empty() ? "" : unreadable[0]));
  const auto before = scan_source(folder, options.scan);
  Rewrite out;
  if (options.distributed) out.not_distributed = not_distributed(before);
  const bool ranks = options.distributed && out.not_distributed.empty();
  for (const char* name : {kRankFile, kLauncher})
    check(!ranks || !fs::exists(fs::symlink_status(root / name, ignored)), ErrorKind::Data, kWhere, (root / name).string(),
          ": has the name of a file that --distributed writes; hint: rename it first");
  if (target.has_parent_path()) make_folder(target.parent_path());
  out.source = visible_text(folder.string());
  out.out = visible_text(target.string());
  AtomicDirectory copy(target);
  make_folder(copy.temporary() / kReportFolder);
  RewriteLog log(copy.temporary() / kReportFolder, out.source);
  Copy(root, copy.temporary(), ranks, out).run(entries, options.scan, log);
  log.finish(out);
  auto remaining = options.scan;
  remaining.serves_npu = !before.serves_npu.empty();
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
                                                           {"launcher", rewrite.launcher},
                                                           {"not_distributed", rewrite.not_distributed},
                                                           {"by_hand", detail::json_list(rewrite.by_hand)},
                                                           {"left_out", detail::json_list(rewrite.left_out)},
                                                           {"remaining", to_json(rewrite.remaining)}}));
  out.verdict(rewrite.out + ": " + counted(rewrite.changes, "change") + " in " + counted(rewrite.files_changed, "file") + " of " +
              with_commas(rewrite.files) + "; remaining: " + headline(rewrite.remaining));
  out.remarks("not copied", rewrite.left_out);
  if (!rewrite.launcher.empty())
    out.say(
        rewrite.launcher +
        " starts one process for each NPU, in place of DataParallel; a program that is started without it needs the copy in PYTHONPATH");
  out.remarks("for several processes, by hand", rewrite.by_hand, Tone::Warn);
  if (!rewrite.not_distributed.empty()) out.say("not distributed: " + rewrite.not_distributed, Tone::Warn);
  out.say(std::string(kReportFolder) + "/: log.json (every change), changes.diff (for patch -p1), todo.md (the remaining manual changes)");
  return out;
}

}  // namespace npu_train

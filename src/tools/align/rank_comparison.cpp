#include "npu_train/tools/align/rank_comparison.hpp"

#include <algorithm>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "tools/align/dump_places.hpp"
#include "tools/align/rank_checks.hpp"

namespace npu_train {
namespace fs = std::filesystem;
namespace {

using detail::RanksOfStep;

constexpr const char* kWhere = "compare --ranks";
constexpr size_t kMostFolders = 100'000;

// Returns the folders in `folder` with names "<word>N", by N.
std::map<int64_t, fs::path> numbered(const fs::path& folder, std::string_view word) {
  std::map<int64_t, fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end && out.size() < kMostFolders; it.increment(error))
    if (const auto number = detail::number_after(it->path().filename().string(), word); number && it->is_directory(error))
      out.emplace(*number, it->path());
  return out;
}

std::map<int64_t, RanksOfStep> read_steps(const fs::path& path, const std::vector<int64_t>& wanted) {
  std::error_code error;
  check(fs::is_directory(path, error), ErrorKind::Data, kWhere, path.string(), ": not a folder; allowed: the folder of a dump");
  std::map<int64_t, RanksOfStep> out;
  bool dumped = false;
  for (const auto& [step, step_folder] : numbered(path, "step"))
    for (const auto& [rank, folder] : numbered(step_folder, "rank")) {
      const auto file = folder / detail::kRankNotes;
      dumped |= !detail::description_in(folder).empty();
      if (!fs::is_regular_file(fs::symlink_status(file, error))) continue;
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), step) == wanted.end()) continue;
      auto notes = detail::read_rank_notes(file);
      check(notes.step == step && notes.rank == rank, ErrorKind::Data, kWhere, file.string(), ": it is of step ", notes.step, " and rank ",
            notes.rank, "; hint: a folder was renamed");
      out[step].emplace(static_cast<int>(rank), std::move(notes));
    }
  check(!out.empty(), ErrorKind::Data, kWhere, path.string(), ": contains no step<N>/rank<R>/rank.json",
        !wanted.empty() ? " of the requested steps"
        : dumped        ? "; hint: it is the dump of one process; train_app CONFIG --nproc 2 dump.level=module writes one for each rank"
        : fs::exists(path / "dump", error) ? "; hint: give the folder dump in it"
                                           : "; hint: train_app CONFIG --nproc 2 dump.level=module writes one for each rank");
  return out;
}

// Adds notes on facts of the environment that differ between ranks, and by which equal programs may compute different bits.
void note_environments(const std::map<int64_t, RanksOfStep>& steps, std::vector<std::string>& notes) {
  std::set<std::string> versions, cpus, threads;
  for (const auto& [rank, n] : steps.begin()->second) {
    versions.insert(n.version);
    cpus.insert(n.cpu);
    threads.insert(std::to_string(n.threads));
  }
  const auto add = [&](const char* what, const std::set<std::string>& values) {
    if (values.size() > 1) notes.push_back(std::string("the ranks differ in ") + what + ": " + join({values.begin(), values.end()}));
  };
  add("the version of npu_train", versions);
  add("the vector instructions of the CPU", cpus);
  add("the number of threads", threads);
}

// Adds a note on the first step in which ranks are missing. Returns whether no step lacks a rank.
bool note_missing(const std::map<int64_t, RanksOfStep>& steps, std::vector<std::string>& notes) {
  size_t expected = 0;
  for (const auto& [step, ranks] : steps)
    for (const auto& [rank, n] : ranks) expected = std::max(expected, static_cast<size_t>(std::max(0, n.ranks)));
  bool complete = true;
  for (const auto& [step, ranks] : steps) {
    if (ranks.size() == expected) continue;
    if (complete)
      notes.push_back("step " + std::to_string(step) + " has the dumps of " + std::to_string(ranks.size()) + " of " +
                      std::to_string(expected) + " ranks: a rank ended, dump.ranks leaves it out, or its folder is on another machine");
    complete = false;
  }
  return complete;
}

// Adds the first fault of each kind, and counts the later ones. `found` is ordered by step, then by cause and effect.
void add_faults(std::vector<RankFault> found, std::vector<RankFault>& faults) {
  for (auto& fault : found) {
    const auto same = std::find_if(faults.begin(), faults.end(), [&](const RankFault& f) { return f.kind == fault.kind; });
    if (same == faults.end())
      faults.push_back(std::move(fault));
    else if (same->step != fault.step)
      ++same->more_steps;
  }
}

}  // namespace

RankComparison compare_ranks(const fs::path& path, const std::vector<int64_t>& wanted, const RankLimits& limits) {
  auto steps = read_steps(path, wanted);
  RankComparison out{.path = path.string(), .limits = limits};
  out.complete = note_missing(steps, out.notes);
  note_environments(steps, out.notes);
  std::erase_if(steps, [](const auto& step) { return step.second.size() < 2; });
  check(!steps.empty(), ErrorKind::Data, kWhere, path.string(),
        ": no step has the dumps of two ranks; hint: collect the folders of all "
        "machines in one, and leave dump.ranks empty");
  std::set<int> ranks;
  for (const auto& [step, of_step] : steps) {
    out.steps.push_back(step);
    for (const auto& [rank, notes] : of_step) ranks.insert(rank);
    add_faults(detail::faults_of_step(step, of_step), out.faults);
  }
  add_faults(detail::faults_over_steps(steps, limits), out.faults);
  std::stable_sort(out.faults.begin(), out.faults.end(), [](const RankFault& a, const RankFault& b) {
    return std::pair(a.step, detail::order_of(a.kind)) < std::pair(b.step, detail::order_of(b.kind));
  });
  for (const int rank : ranks) out.ranks.push_back(detail::summary_of(rank, steps));
  return out;
}

}  // namespace npu_train

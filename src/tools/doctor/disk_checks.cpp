#include <unistd.h>

#include <chrono>
#include <system_error>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDisk = "disk";
constexpr uint64_t kDiskMiB = uint64_t{1} << 20, kDiskGiB = uint64_t{1} << 30;
constexpr double kSlow = 50e6;  // bytes per second, at which a checkpoint of 1 GB interrupts training for 20 s

// Returns the absolute path of the folder inside the view's root.
std::string absolute_folder(const HostView& host, const std::string& folder) {
  std::error_code none;
  const auto path =
      fs::path(folder).is_absolute() || host.root != "/" ? "/" / fs::path(folder).relative_path() : fs::absolute(folder, none);
  auto out = path.lexically_normal().string();
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

// Returns the folder itself or its nearest existing parent.
std::string nearest_folder(const HostView& host, const std::string& folder) {
  fs::path path = folder;
  while (!host.exists(path.string()) && path.has_relative_path()) path = path.parent_path();
  return path.string();
}

struct Mount {
  std::string point, type;
  bool read_only = false;
};

// Returns the file system that contains `folder`, from /proc/self/mounts: "device point type options 0 0".
std::optional<Mount> mount_of(const HostView& host, const std::string& folder) {
  std::optional<Mount> out;
  const auto real = host.resolved(folder);
  for (const auto& line : detail::split(host.read("/proc/self/mounts").value_or(""), '\n')) {
    const auto cells = detail::words(line);
    if (cells.size() < 4) continue;
    const auto& point = cells[1];
    const bool holds = real == point || real.starts_with(point == "/" ? point : point + "/");
    if (!holds || (out && out->point.size() > point.size())) continue;  // of several mounts at the same point, only the last one is visible
    const auto options = detail::split(cells[3], ',');
    out = Mount{point, cells[2], !options.empty() && options[0] == "ro"};
  }
  return out;
}

Finding space_finding(const HostView& host, const std::string& folder, const std::string& there) {
  const auto space = host.space(host.path(there));
  if (!space)
    return {
        kDisk, "space", Verdict::Fail, "the free space at " + folder + " is unknown", "statvfs failed", "check that the disk is mounted"};
  const auto free = space->available;
  Finding f{kDisk, "space", Verdict::Ok, human_bytes(static_cast<double>(free)) + " free at " + folder,
            "statvfs of " + there + ": " + human_bytes(static_cast<double>(space->total)) + " in total"};
  if (free < 4 * kDiskGiB || space->free_files < 1000) {
    f.verdict = free < kDiskGiB / 4 || space->free_files < 20 ? Verdict::Fail : Verdict::Warn;
    f.finding += space->free_files < 1000 ? ", but only " + std::to_string(space->free_files) + " more files (inodes)"
                                          : ", which a few checkpoints of a large model fill";
    f.fix = "free some space, choose another folder with output.dir, or keep fewer checkpoints (checkpoint.save_top_k)";
  }
  return f;
}

Finding file_system_finding(const HostView& host, const std::string& there) {
  const auto mount = mount_of(host, there);
  if (!mount)
    return {kDisk, "file system", Verdict::Ok, "the type of file system is unknown", "/proc/self/mounts has no entry for " + there};
  Finding f{kDisk, "file system", Verdict::Ok, mount->type, "/proc/self/mounts: " + mount->point + " is " + mount->type};
  if (mount->read_only) {
    f.verdict = Verdict::Fail;
    f.finding += ", mounted read-only: nothing can be written";
    f.fix = "choose a folder on another file system with output.dir, or check dmesg for the reason";
  } else if (mount->type == "tmpfs" || mount->type == "ramfs") {
    f.verdict = Verdict::Warn;
    f.finding += ", which is in memory: checkpoints are lost after a reboot, and use memory that training needs";
    f.fix = "choose a folder on a disk with output.dir";
  } else if (mount->type == "overlay") {
    f.finding += ": the layer of a container; its files are lost with the container unless the folder is a volume (docker run -v)";
  }
  return f;
}

// Returns the speed in bytes per second. The time includes the synchronisation with the disk. Error(Checkpoint) if the disk fails.
double write_speed(const fs::path& folder, uint64_t bytes) {
  std::string block(kDiskMiB, '\0');
  uint64_t state = 1;  // random numbers, which no file system can compress
  for (auto& c : block) c = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  const auto name = folder / (".npu_train_doctor." + std::to_string(::getpid()));
  const auto start = std::chrono::steady_clock::now();
  AtomicFile file(name);
  for (uint64_t done = 0; done < bytes; done += block.size()) file.write(block);
  file.commit();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::error_code none;
  fs::remove(name, none);
  return static_cast<double>(file.size()) / std::max(seconds, 1e-6);
}

Finding speed_finding(const HostView& host, const std::string& folder, const std::string& there, uint64_t bytes) {
  const auto space = host.space(host.path(there));
  if (space && space->available < 4 * bytes)
    return {kDisk, "write speed", Verdict::NotHere, "not measured: too little free space at " + folder, "", ""};
  try {
    const double speed = write_speed(host.path(there), bytes);
    Finding f{kDisk, "write speed", Verdict::Ok, short_number(speed / 1e6, 3) + " MB/s",
              human_bytes(static_cast<double>(bytes)) + " written to " + there + " and synchronised to the disk"};
    if (speed < kSlow) {
      f.verdict = Verdict::Warn;
      f.finding += ": a checkpoint of 1 GB takes " + human_duration(1e9 / speed);
      f.fix = "choose a folder on a local disk with output.dir, or write checkpoints less often (checkpoint.every_n_train_steps)";
    }
    return f;
  } catch (const Error& e) {
    return {kDisk,         "write speed",
            Verdict::Fail, "no file can be written to " + folder,
            e.what(),      "grant this user write permission (ls -ld " + there + "), or choose another folder with output.dir"};
  }
}

}  // namespace

std::vector<Finding> check_disk(const HostView& host, const std::string& folder, uint64_t write_bytes) {
  const auto absolute = absolute_folder(host, folder);
  const auto there = nearest_folder(host, absolute);
  if (!host.is_folder(there))
    return {
        {kDisk, "space", Verdict::Fail, absolute + " cannot be a folder", there + " is a file", "choose another folder with output.dir"}};
  std::vector<Finding> out = {space_finding(host, absolute, there), file_system_finding(host, there)};
  if (write_bytes > 0) out.push_back(speed_finding(host, absolute, there, write_bytes));
  return out;
}

}  // namespace npu_train

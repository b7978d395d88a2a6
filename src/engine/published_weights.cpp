#include "engine/published_weights.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "engine/facts/torchvision_weights.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/process.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/download.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "weights";

// Returns the Python command with which a library writes its weights to a file.
std::string how_to_get(const std::string& scheme, const std::string& name) {
  const auto last = name.substr(name.rfind('/') + 1);
  if (scheme == "timm")
    return "python3 -c \"import torch, timm; torch.save(timm.create_model('" + last + "', pretrained=True).state_dict(), '" + last +
           ".pth')\"";
  if (scheme == "hf" || scheme == "huggingface" || scheme == "hub") return "hf download " + name + " --local-dir " + last;
  return "download the file";
}

std::string variable(const char* name) {
  const char* set = std::getenv(name);
  return set != nullptr ? set : "";
}

// A lock on a folder: in its scope, no other process uses the folder, if the file system supports locks.
class FolderInUse {
 public:
  explicit FolderInUse(const fs::path& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FolderInUse() {
    if (fd_ >= 0) ::close(fd_);
  }
  FolderInUse(const FolderInUse&) = delete;
  FolderInUse& operator=(const FolderInUse&) = delete;

 private:
  int fd_;
};

// Returns the checksum, computed by coreutils; "" if they are not installed.
std::string sha256_of(const fs::path& file) {
  const auto result = run_command({"sha256sum", "--", file.string()}, {.deadline = std::nullopt});
  check(result.end == CommandResult::End::NotFound || result.ok(), ErrorKind::Data, kWhere, file.string(), ": sha256sum failed");
  return result.ok() ? result.output.substr(result.output.find_first_of("0123456789abcdef"), 64) : "";
}

}  // namespace

bool is_published_name(const std::string& path) { return path.find("://") != std::string::npos; }

PublishedWeights published_weights(const std::string& name) {
  const auto colon = name.find("://");
  const auto scheme = name.substr(0, colon), rest = name.substr(colon + 3);
  if (scheme != "torchvision")
    throw Error(ErrorKind::Usage, kWhere, name + ": only weights of torchvision are fetched by name; others are read from files",
                how_to_get(scheme, rest) + ", then give the path of that file or folder");
  const auto slash = rest.find('/');
  const auto network = rest.substr(0, slash), set = slash == std::string::npos ? "DEFAULT" : rest.substr(slash + 1);
  std::vector<std::string> networks, sets;
  for (const auto& row : facts_rows(facts::torchvision_weights, "torchvision_weights", 4)) {
    if (networks.empty() || networks.back() != row[0]) networks.emplace_back(row[0]);
    if (row[0] != network) continue;
    sets.emplace_back(row[1]);
    if (row[1] != set && !(set == "DEFAULT" && row[2] == "*")) continue;
    const std::string file(row[3]);
    const auto dash = file.rfind('-') + 1;
    return {"https://download.pytorch.org/models/" + file, file, file.substr(dash, file.rfind('.') - dash)};
  }
  const auto near = nearest_name(network, networks);
  throw Error(ErrorKind::Usage, kWhere,
              name + ": torchvision publishes no such weights for a network of this library; there are: " +
                  (sets.empty() ? join(networks) : join(sets) + " for " + network),
              !sets.empty() || near.empty() ? "" : "did you mean torchvision://" + near + "?");
}

fs::path hub_cache() {
  if (const auto torch = variable("TORCH_HOME"); !torch.empty()) return fs::path(torch) / "hub/checkpoints";
  if (const auto caches = variable("XDG_CACHE_HOME"); !caches.empty()) return fs::path(caches) / "torch/hub/checkpoints";
  const auto home = variable("HOME");
  check(!home.empty(), ErrorKind::Data, kWhere, "there is no cache for downloads: HOME is not set; hint: set TORCH_HOME to a folder");
  return fs::path(home) / ".cache/torch/hub/checkpoints";
}

fs::path cached_weights(const PublishedWeights& weights, const fs::path& cache) {
  const fs::path file = cache / weights.file;
  std::error_code error;
  if (fs::exists(file, error)) return file;
  check_online(weights.url, "copy the file to " + file.string() + ", where torch.hub has it too");
  make_folder(cache);
  // Lets one rank of a machine download while the others wait.
  const FolderInUse lock(cache);
  if (fs::exists(file, error)) return file;
  log_info("downloading ", weights.url);
  const fs::path unfinished = file.string() + "." + std::to_string(::getpid()) + ".part";
  try {
    download_file(weights.url, unfinished, "copy the file to " + file.string() + ", where torch.hub has it too");
    const auto sum = sha256_of(unfinished);
    check(!sum.empty(), ErrorKind::Data, kWhere, "sha256sum is not installed, so that ", weights.url,
          " cannot be checked; hint: install coreutils");
    check(sum.starts_with(weights.sha256), ErrorKind::Data, kWhere, weights.url, ": the SHA-256 is ", sum, ", which should begin with ",
          weights.sha256, "; hint: try again later");
    fs::rename(unfinished, file);
  } catch (const std::exception&) {
    fs::remove(unfinished, error);
    throw;
  }
  log_info("the weights are in ", file.string());
  return file;
}

}  // namespace npu_train::detail

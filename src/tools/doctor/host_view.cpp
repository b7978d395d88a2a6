#include "npu_train/tools/doctor/checks.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "npu_train/tools/doctor/environment_lint.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNames = 10'000;
constexpr size_t kLongestValue = 64 * 1024;

std::optional<FileSystemSpace> space_of(const fs::path& path) {
  struct statvfs s {};
  if (::statvfs(path.c_str(), &s) != 0) return std::nullopt;
  return FileSystemSpace{static_cast<uint64_t>(s.f_blocks) * s.f_frsize, static_cast<uint64_t>(s.f_bavail) * s.f_frsize,
                         s.f_files == 0 ? UINT64_MAX : static_cast<uint64_t>(s.f_favail)};
}

bool read_whole(int fd, size_t max_bytes, std::string& out) {
  while (out.size() < max_bytes) {
    const size_t before = out.size();
    out.resize(std::min(max_bytes, before + 65536));
    const ssize_t got = ::read(fd, out.data() + before, out.size() - before);
    out.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
  }
  return true;
}

}  // namespace

HostView HostView::live() {
  HostView out;
  for (const auto& known : known_variables())
    if (const char* value = std::getenv(known.name.c_str())) out.environment[known.name] = std::string(value).substr(0, kLongestValue);
  if (const char* home = std::getenv("HOME")) out.environment["HOME"] = home;  // a user's CANN may be installed there
  out.run = [](const std::vector<std::string>& words) { return run_command(words); };
  out.space = space_of;
  out.may_use = [](const fs::path& path) { return ::access(path.c_str(), R_OK | W_OK) == 0; };
  return out;
}

fs::path HostView::path(std::string_view absolute) const {
  if (root == "/") return fs::path(absolute);
  return root / fs::path(absolute).relative_path();
}

std::optional<std::string> HostView::read(std::string_view absolute, size_t max_bytes) const {
  const int fd = ::open(path(absolute).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  struct stat info {};
  std::string out;
  const bool good = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && read_whole(fd, max_bytes, out);
  ::close(fd);
  return good ? std::optional(std::move(out)) : std::nullopt;
}

bool HostView::exists(std::string_view absolute) const {
  std::error_code none;
  return fs::exists(path(absolute), none);
}

bool HostView::is_folder(std::string_view absolute) const {
  std::error_code none;
  return fs::is_directory(path(absolute), none);
}

std::vector<std::string> HostView::list(std::string_view absolute) const {
  std::vector<std::string> out;
  std::error_code none;
  for (fs::directory_iterator it(path(absolute), fs::directory_options::skip_permission_denied, none), last;
       !none && it != last && out.size() < kMostNames; it.increment(none))
    out.push_back(it->path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::string HostView::resolved(std::string_view absolute) const {
  std::error_code none;
  const auto real = fs::canonical(path(absolute), none);
  if (none) return std::string(absolute);
  if (root == "/") return real.string();
  const auto inside = real.lexically_relative(fs::canonical(root, none));
  return none || inside.empty() || inside.native().starts_with("..") ? std::string(absolute) : "/" + inside.string();
}

std::string HostView::variable(const std::string& name) const {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace npu_train

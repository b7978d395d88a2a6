#include "npu_train/data/download.hpp"

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/process.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

/// A limit in bytes above the size of any archive and of its content.
constexpr uint64_t kLargestFile = uint64_t{1} << 31;

/// Runs a command without a deadline, because curl and wget have time limits of their own.
CommandResult run(const std::vector<std::string>& words) {
  return run_command(words, {.deadline = std::nullopt, .max_file_bytes = kLargestFile});
}

std::string last_words(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text.empty() ? text : " (" + text.substr(text.find_last_of('\n') + 1) + ")";
}

}  // namespace

void check_online(const std::string& url, const std::string& remedy) {
  const char* offline = std::getenv("NPU_TRAIN_OFFLINE");
  check(offline == nullptr || *offline == '\0' || std::string_view(offline) == "0", ErrorKind::Data, "download", url,
        ": is not downloaded, since NPU_TRAIN_OFFLINE is set; hint: ", remedy);
}

void download_file(const std::string& url, const fs::path& file, const std::string& remedy) {
  const bool local = url.starts_with("file://");
  check(local || url.starts_with("https://"), ErrorKind::Data, "download", url, ": allowed: https:// and file://");
  check_online(url, remedy);
  // -q must come first; it ignores the user's .curlrc. The download is aborted if the server sends no data for a minute.
  auto result = run({"curl",
                     "-q",
                     "--proto",
                     local ? "=file" : "=https",
                     "--proto-redir",
                     "=https",
                     "--max-redirs",
                     "5",
                     "--max-filesize",
                     std::to_string(kLargestFile),
                     "--speed-limit",
                     "1",
                     "--speed-time",
                     "60",
                     "--fail",
                     "--location",
                     "--silent",
                     "--show-error",
                     "--retry",
                     "2",
                     "--connect-timeout",
                     "20",
                     "--output",
                     file.string(),
                     "--",
                     url});
  if (result.end == CommandResult::End::NotFound && !local)
    result = run(
        {"wget", "--no-config", "--max-redirect=5", "--quiet", "--tries=3", "--timeout=20", "--output-document", file.string(), "--", url});
  if (result.ok()) return;
  throw Error(ErrorKind::Data, "download",
              url + ": " +
                  (result.end == CommandResult::End::NotFound ? "neither curl nor wget is installed"
                                                              : "cannot be downloaded" + last_words(result.output)),
              remedy);
}

namespace {

bool has_files(CifarKind kind, const std::string& root) {
  std::error_code error;
  for (const Split split : {Split::Train, Split::Val}) {
    for (const auto& name : cifar_files(kind, split)) {
      if (!fs::exists(fs::path(root) / name, error)) return false;
    }
  }
  return true;
}

}  // namespace

Archive cifar_archive(CifarKind kind) {
  const std::string base = "https://www.cs.toronto.edu/~kriz/";
  if (kind == CifarKind::Cifar10) return {base + "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin"};
  return {base + "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary"};
}

void download_cifar(CifarKind kind, const std::string& root) {
  if (has_files(kind, root)) return;
  download_archive(cifar_archive(kind), root);
}

void download_archive(const Archive& archive, const std::string& root) {
  std::error_code error;
  check(!fs::exists(root, error) || fs::is_empty(root, error), ErrorKind::Data, "download", root,
        ": exists, but with other content; hint: remove it, or set data.root to another folder");
  log_info("downloading ", archive.url);
  if (const auto parent = fs::path(root).parent_path(); !parent.empty()) make_folder(parent);
  AtomicDirectory target{fs::path(root)};
  const fs::path file = target.temporary() / "archive.tar.gz";
  download_file(archive.url, file, "copy the .bin files to data.root, or use 'data={name: generated}'");
  const std::string sum = md5_of_file(file.string());
  check(sum == archive.md5, ErrorKind::Data, "download", archive.url, ": the MD5 sum is ", sum, "; expected: ", archive.md5,
        "; hint: try again later");
  const auto unpacked = run({"tar", "--extract", "--gzip", "--strip-components=1", "--no-same-owner", "--file", file.string(),
                             "--directory", target.temporary().string(), archive.folder});
  check(unpacked.ok(), ErrorKind::Data, "download", archive.url, ": cannot be unpacked", last_words(unpacked.output),
        "; hint: check the free space in ", root);
  fs::remove(file, error);
  target.commit();
  log_info("the data are in ", root);
}

}  // namespace npu_train

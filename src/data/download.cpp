#include "npu_train/data/download.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

/// More than any archive has, and what is unpacked of it.
constexpr rlim_t kLargestFile = rlim_t{1} << 30;

/// Runs a program of the search path, its messages going to `messages`; it may write no file of more than kLargestFile bytes. Its exit
/// status; 127 when there is no such program, 126 when a signal ended it.
int run(std::vector<std::string> arguments, const fs::path& messages) {
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string message_file = messages.string();
  const auto child = ::fork();
  if (child == 0) {  // only what is safe after a fork of a program with threads
    const int in = ::open("/dev/null", O_RDONLY), out = ::open("/dev/null", O_WRONLY);
    const int said = ::open(message_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const rlimit largest{kLargestFile, kLargestFile};
    if (::dup2(in, STDIN_FILENO) < 0 || ::dup2(out, STDOUT_FILENO) < 0 || ::dup2(said, STDERR_FILENO) < 0) ::_exit(126);
    if (::setrlimit(RLIMIT_FSIZE, &largest) != 0) ::_exit(126);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  if (child < 0) return 126;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 126;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

std::string last_words(const fs::path& messages) {
  std::error_code error;
  if (!fs::exists(messages, error)) return {};
  std::string text = read_file(messages, 1 << 20);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text.empty() ? text : " (" + text.substr(text.find_last_of('\n') + 1) + ")";
}

void fetch(const std::string& url, const fs::path& file, const fs::path& messages) {
  const bool local = url.starts_with("file://");
  check(local || url.starts_with("https://"), ErrorKind::Data, "download", url, ": allowed: https:// and file://");
  // -q comes first: it keeps the user's .curlrc out. A server that sends nothing for a minute is given up.
  int status = run({"curl",
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
                    url},
                   messages);
  if (status == 127 && !local)
    status = run(
        {"wget", "--no-config", "--max-redirect=5", "--quiet", "--tries=3", "--timeout=20", "--output-document", file.string(), "--", url},
        messages);
  if (status == 0) return;
  throw Error(ErrorKind::Data, "download",
              url + ": " + (status == 127 ? "there is neither curl nor wget" : "cannot be fetched" + last_words(messages)),
              "without a network, copy the .bin files to data.root by hand or run on 'data={name: generated}'");
}

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
        ": is there and holds something else; hint: remove it or name another folder as data.root");
  log_info("fetching ", archive.url);
  if (const auto parent = fs::path(root).parent_path(); !parent.empty()) make_folder(parent);
  AtomicDirectory target{fs::path(root)};
  const fs::path file = target.temporary() / "archive.tar.gz", messages = target.temporary() / "messages.txt";
  fetch(archive.url, file, messages);
  const std::string sum = md5_of_file(file.string());
  check(sum == archive.md5, ErrorKind::Data, "download", archive.url, ": its MD5 sum is ", sum, " and should be ", archive.md5,
        "; hint: try again later");
  const int status = run({"tar", "--extract", "--gzip", "--strip-components=1", "--no-same-owner", "--file", file.string(), "--directory",
                          target.temporary().string(), archive.folder},
                         messages);
  check(status == 0, ErrorKind::Data, "download", archive.url, ": cannot be unpacked", last_words(messages), "; hint: is there room in ",
        root, "?");
  fs::remove(file, error);
  fs::remove(messages, error);
  target.commit();
  log_info("data is in ", root);
}

}  // namespace npu_train

#include "cli.hpp"

#include <sys/ioctl.h>
#include <torch/version.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "npu_train/core/error.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train::cli {
namespace {

namespace fs = std::filesystem;
std::atomic<int> g_signal{0};
std::atomic<void (*)()> g_stop{nullptr};

extern "C" void handle(int number) {
  if (g_signal.exchange(number) != 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
    return;
  }
  if (auto stop = g_stop.load()) stop();
}

std::string find_config(const std::string& path) {
  if (fs::exists(path)) return path;
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  if (error) return path;
  const auto prefix = program.parent_path().parent_path();
  const auto installed = prefix / "share" / "npu_train" / path;
  return fs::exists(installed) ? installed.string() : path;
}

}  // namespace

int written(int code) {
  errno = 0;
  std::cout.flush();
  const bool whole = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (whole) return code;
  std::fprintf(stderr, "error: [stdout] the output could not be written%s%s\n", errno != 0 ? ": " : "",
               errno != 0 ? std::strerror(errno) : "");
  return code != 0 ? code : static_cast<int>(ErrorKind::Checkpoint);
}

size_t terminal_columns() {
  winsize size{};
  return ::isatty(STDOUT_FILENO) && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int guarded(const std::function<int()>& body) {
  try {
    return written(body());
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return e.exit_code();
  } catch (...) {
    const auto e = translate_current_exception("main");
    std::fprintf(stderr, "error: %s\n", e.what());
    return e.exit_code();
  }
}

void on_stop_signal(void (*stop)()) {
  g_stop = stop;
  struct sigaction action {};
  action.sa_handler = handle;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int signal_received() { return g_signal.load(); }

std::string version_text() {
  std::string out = "npu_train " NPU_TRAIN_VERSION " (libtorch " TORCH_VERSION ";";
  for (const auto* backend : all_backends()) out += " " + backend->name() + (backend->is_available() ? "" : " no") + ",";
  out.back() = ')';
  return out;
}

ConfigWords split_words(const std::vector<std::string>& words) {
  ConfigWords out;
  for (const auto& word : words) {
    if (word.find('=') != std::string::npos) {
      out.overrides.push_back(word);
    } else {
      check(out.file.empty(), ErrorKind::Usage, "command line", "two configurations are given: ", out.file, " and ", word,
            "; overrides are key=value");
      out.file = find_config(word);
    }
  }
  return out;
}

}  // namespace npu_train::cli

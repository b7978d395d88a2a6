#include "console.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/progress_line.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/report/html_page.hpp"

namespace npu_train::cli {
namespace {

namespace fs = std::filesystem;
std::atomic<int> g_signal{0};
std::atomic<int64_t> g_signal_time{0};
std::atomic<void (*)()> g_stop{nullptr};

int64_t nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

extern "C" void handle(int number) {
  const int before = errno;
  const auto now = nanoseconds();
  int64_t none = 0;
  if (g_signal_time.compare_exchange_strong(none, now)) {
    g_signal = number;
    if (auto stop = g_stop.load()) stop();
  } else if ((number == SIGINT || number == SIGTERM) && now - none >= 1'000'000'000) {
    // The user repeats the request. A signal that follows sooner belongs to the first one: timeout(1) signals a process and then its group.
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  errno = before;
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

namespace {

size_t columns_of_terminal(int descriptor) {
  winsize size{};
  return ::isatty(descriptor) && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

size_t terminal_columns() { return columns_of_terminal(STDOUT_FILENO); }

WorkProgress progress_on_stderr(const std::string& what) {
  std::function<void(const std::string&)> write;
  if (columns_of_terminal(STDERR_FILENO) > 0)
    write = [](const std::string& text) { std::fputs(text.c_str(), stderr), std::fflush(stderr); };
  const auto line =
      std::make_shared<npu_train::detail::CountedProgress>(what, std::move(write), [] { return columns_of_terminal(STDERR_FILENO); });
  return [line](int64_t done, int64_t total) { line->show(done, total, 1e-9 * static_cast<double>(nanoseconds())); };
}

namespace {

/// Returns the launch of this process. If its description is not valid, returns a single process: the code that uses it reports the error.
Launch launch_of_process() {
  try {
    return launch_of_environment();
  } catch (const Error&) {
    return {};
  }
}

int rank_of_process() { return launch_of_process().rank; }

/// Returns "[rank 2] " on ranks other than 0.
std::string rank_prefix() {
  const int rank = rank_of_process();
  return rank == 0 ? "" : "[rank " + std::to_string(rank) + "] ";
}

int report(const Error& e) {
  std::fprintf(stderr, "error: %s%s\n", rank_prefix().c_str(), npu_train::detail::visible_lines(e.what()).c_str());
  return e.exit_code();
}

}  // namespace

int guarded(const std::function<int()>& body) {
  try {
    return written(body());
  } catch (const Error& e) {
    return report(e);
  } catch (...) {
    return report(translate_current_exception("main"));
  }
}

void leave_stdout_to_main_rank() {
  if (rank_of_process() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) std::abort();
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (launch_of_process().world_size == 1 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // if this fails, the ranks report the number of files that they need
}

LogSink make_program_sink() {
  if (rank_of_process() == 0) return make_standard_sink();
  return [prefix = rank_prefix(), sink = make_standard_sink(LogLevel::Warning)](LogLevel level, std::string_view message) {
    sink(level, prefix + std::string(message));
  };
}

void open_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", O_RDWR) != fd) std::abort();
}

void on_stop_signal(void (*stop)()) {
  g_stop = stop;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGPIPE}) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (number != SIGHUP || before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

int signal_received() { return g_signal.load(); }

namespace {

/// Rejects "key = value", "key= value" and "key =value", which the shell passes as several words.
void refuse_blanks(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    const bool begins = word.starts_with('=') && i > 0;
    const bool ends = word.ends_with('=') && i + 1 < words.size() && words[i + 1].find('=') == std::string::npos;
    if (!begins && !(ends && words[i + 1].find(".yaml") == std::string::npos)) continue;
    const auto first = begins ? words[i - 1] : "", last = ends ? words[i + 1] : "";
    throw Error(ErrorKind::Usage, "command line", "an override must be one word, without spaces around '='",
                "write " + first + word + last);
  }
}

}  // namespace

ConfigWords split_words(const std::vector<std::string>& words) {
  refuse_blanks(words);
  ConfigWords out;
  for (const auto& word : words) {
    if (word.find('=') != std::string::npos) {
      out.overrides.push_back(word);
    } else {
      check(out.file.empty(), ErrorKind::Usage, "command line", "there must be one configuration, but two are given: ", out.file, " and ",
            word, "; an override has the form key=value");
      out.file = find_config(word);
    }
  }
  return out;
}

void print(bool json, const Json& document, const std::string& text) {
  errno = 0;
  const auto shown = json ? document.dump() + "\n" : wrapped_lines(npu_train::detail::visible_lines(text), terminal_columns());
  const bool whole = std::fputs(shown.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  check(whole, ErrorKind::Checkpoint, "stdout", "the output could not be written: ", std::strerror(errno));
}

void show(const Report& report, bool json, const std::string& html, std::optional<size_t> rows) {
  if (!html.empty()) write_page(html, report.html());
  print(json, json ? report.json() : Json(), json ? "" : report.text(terminal_columns(), rows));
}

void check_writable(const std::vector<std::string>& files) {
  for (const auto& file : files) {
    if (file.empty()) continue;
    std::error_code error;
    const auto folder = std::filesystem::weakly_canonical(std::filesystem::absolute(file, error), error).parent_path();
    check(error || !std::filesystem::exists(folder / "manifest.json", error), ErrorKind::Usage, "output", file,
          ": is inside a checkpoint, whose files must not change; hint: name a file elsewhere");
    AtomicFile{file};  // creates and removes a temporary file next to it
  }
}

}  // namespace npu_train::cli

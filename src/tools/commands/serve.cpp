#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "commands.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/random_hex.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "run_record.hpp"
#include "tools/commands/serve/page_server.hpp"

namespace npu_train::cli {
namespace {

struct ServeArguments {
  std::vector<std::string> runs;
  int port = 0;
  int64_t refresh = 10;
  bool json = false;
};

// The page of npu_tool report, or the error in its place. The page is rebuilt only after an error or if the files of the runs have changed,
// and rarely enough to take at most a tenth of the time.
class RunPage {
 public:
  explicit RunPage(std::vector<std::string> runs) : runs_(std::move(runs)) {}

  std::shared_ptr<const std::string> get() {
    if (const auto begin = Time::now(); begin >= next_) {
      if (auto files = files_now(); error_ || files != files_) make(std::move(files));
      next_ = Time::now() + std::max<Time::duration>(std::chrono::seconds(1), 9 * (Time::now() - begin));
    }
    if (error_) std::rethrow_exception(error_);
    return page_;
  }

 private:
  using Time = std::chrono::steady_clock;

  void make(std::string files) {
    files_ = std::move(files);
    error_ = nullptr;
    try {
      page_ = std::make_shared<const std::string>(with_origin(report_of(read_runs(runs_)).html(), PageOrigin::here()));
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  // Returns the sizes and times of the files that read_runs() reads.
  std::string files_now() const {
    std::string out;
    for (const auto& run : runs_)
      for (const char* file : {"config.yaml", "metrics.csv", "history.json", "environment.json", "monitor.csv", "overflow_report.json"}) {
        struct stat info {};
        if (::stat((run + "/" + file).c_str(), &info) == 0)
          out += str_cat(info.st_size, ' ', info.st_ino, ' ', info.st_mtim.tv_sec, ' ', info.st_mtim.tv_nsec);
        out += '\n';
      }
    return out;
  }

  std::vector<std::string> runs_;
  std::shared_ptr<const std::string> page_;
  std::exception_ptr error_;
  std::string files_;  // files_now() of the current page; "" only before the first page
  Time::time_point next_{};
};

[[noreturn]] void serve(const ServeArguments& args) {
  RunPage page(args.runs);
  page.get();  // reports an error of the runs before anything is served
  const auto announce = [&](int port, const std::string& url) {
    on_stop_signal([] { ::_exit(128 + signal_received()); });  // there is nothing to finish
    print(args.json, Json::object({{"url", url}, {"port", port}}),
          str_cat(url, "\nThis address is reached from this machine only; on another one, first run: ssh -L ", port, ":127.0.0.1:", port,
                  " ", host_name(), "\nCtrl-C ends the server.\n"));
  };
  serve_page(
      {.port = args.port, .refresh = args.refresh, .token = random_hex(24)}, [&] { return page.get(); }, announce);
}

}  // namespace

void add_serve(CLI::App& app, Command& run) {
  auto args = std::make_shared<ServeArguments>();
  auto* sub = app.add_subcommand("serve", "the page of report, for a browser, while the runs train");
  sub->add_option("runs", args->runs, "RUN [RUN ...]: folders of runs, finished or not")->required();
  sub->add_option("--port", args->port, "port on 127.0.0.1; 0: a free one")->capture_default_str()->check(CLI::Range(0, 65535));
  sub->add_option("--refresh", args->refresh, "seconds after which the browser loads the page again; 0: never")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
  sub->add_flag("--json", args->json, "one JSON document on stdout: url and port");
  sub->callback([args, &run] { run = [args](const Parts&) -> int { serve(*args); }; });
}

}  // namespace npu_train::cli

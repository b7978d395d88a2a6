// A program that embeds npu_train and returns normally from main, and the same code as a library that a Python process loads. It uses
// device npu, and reports which state of the process differs afterwards. For torch_npu_test.py.
//
//   npu_guest           starts device npu in one thread, computes on it in another, catches an exception, forks
//   npu_guest --twice   does so after a first call that must fail
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <c10/core/DefaultDtype.h>
#include <sys/wait.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/device/random.hpp"

using namespace npu_train;

namespace {

// Returns the state of the process that belongs to its program.
std::map<std::string, std::string> state_of_process() {
  std::map<std::string, std::string> out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    out["variable " + text.substr(0, text.find('='))] = text;
  }
  for (int number = 1; number < NSIG; ++number) {
    if (number == SIGSEGV || number == SIGBUS) continue;  // the host's CANN handles these to report faults
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0)
      out["signal " + std::to_string(number)] = action.sa_handler == SIG_DFL   ? "default"
                                                : action.sa_handler == SIG_IGN ? "ignored"
                                                                               : "handled";
  }
  for (const auto& [name, category] : {std::pair("LC_CTYPE", LC_CTYPE), std::pair("LC_NUMERIC", LC_NUMERIC)})
    out[name] = std::setlocale(category, nullptr);
  out["default dtype"] = c10::get_default_dtype().name();
  out["threads of libtorch"] = std::to_string(at::get_num_threads());
  out["gradients"] = at::GradMode::is_enabled() ? "on" : "off";
  return out;
}

int report_differences(const std::map<std::string, std::string>& before) {
  auto after = state_of_process();
  int count = 0;
  for (const auto& [name, value] : before) count += after[name] != value ? std::printf("differs: %s\n", name.c_str()) > 0 : 0;
  for (const auto& [name, value] : after)
    count += before.count(name) == 0 ? std::printf("new: %s=%s\n", name.c_str(), value.c_str()) > 0 : 0;
  return count;
}

double sum_on(const c10::Device& device) {
  double sum = 0;
  std::thread([&] { sum = at::ones({3}, at::kFloat).to(device).add_(1).cpu().sum().item<double>(); }).join();
  return sum;
}

// Returns whether a child process can compute on the CPU.
bool child_computes() {
  const pid_t child = fork();
  if (child == 0) _exit(resolve_device("cpu").is_cpu() && at::ones({3}).sum().item<double>() == 3 ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

std::string refusal(const std::string& device) {
  try {
    resolve_device(device);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int npu_guest(int twice) {
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  const auto before = state_of_process();
  std::string first;
  std::thread([&] { first = refusal("npu"); }).join();  // the interpreter starts in a thread that then ends
  if (twice != 0 || !first.empty()) {
    std::printf("first: %s\n", first.c_str());
    std::printf("second: %s\n", refusal("npu").c_str());
    return report_differences(before);
  }
  const auto device = resolve_device("npu");
  seed_everything(7);
  std::printf("count: %d\n", backend_of(device).count());
  std::printf("sum: %g\n", sum_on(device.c10()));
  std::printf("seed: %llu\n", static_cast<unsigned long long>(backend_of(device).generator(device).current_seed()));
  std::printf("total: %lld\n", static_cast<long long>(backend_of(device).memory(device).total));
  std::printf("refused: %s\n", refusal("npu:100").c_str());
  std::printf("child: %s\n", child_computes() ? "computes" : "fails");
  std::fflush(stdout);
  return report_differences(before);
}

#ifndef NPU_GUEST_LIBRARY
int main(int argc, char** argv) { return npu_guest(argc > 1 && std::strcmp(argv[1], "--twice") == 0 ? 1 : 0); }
#endif

// A program without libtorch: checks a machine before libtorch is installed on it.
#include <cstdio>

#include <npu_train/tools/doctor/checks.hpp>

int main() {
  const auto process = npu_train::process_without_libtorch("2.13.0");
  const auto report = npu_train::check_machine(npu_train::HostView::live(), process, {.write_bytes = 0});
  std::puts(report.summary().c_str());
  return report.total() > 0 ? 0 : 1;
}

#include "npu_train/tools/doctor/dist_environment.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "tools/doctor/ascend_facts.hpp"
#include "tools/doctor/cpu_facts.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

constexpr const char* kArea = "dist";
constexpr const char* kInterface = "GLOO_SOCKET_IFNAME";

std::string address_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0 || found == nullptr) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::array<char, NI_MAXHOST> text{};
  const bool known = ::getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  return known ? text.data() : "";
}

// Whether the flags of an interface (hexadecimal, as in /sys/class/net/NAME/flags) contain IFF_UP.
bool is_up(const std::string& flags) { return (std::strtoul(flags.c_str(), nullptr, 16) & 1) != 0; }

Finding launch(const NetworkFacts& facts) {
  Finding f{kArea, "launch", Verdict::Ok, facts.launch, "RANK, WORLD_SIZE and those of Open MPI, MPICH and Slurm"};
  if (facts.launch_problem.empty()) return f;
  f.verdict = Verdict::Fail;
  f.finding = "the variables of a launcher contradict each other: " + facts.launch_problem;
  f.fix = "unset the variables that an earlier launch left in this shell, or start the ranks by a launcher";
  return f;
}

Finding loopback(const HostView& host) {
  const char* path = "/sys/class/net/lo/flags";
  Finding f{kArea, "loopback", Verdict::Ok, "the loopback interface is up", path};
  const auto flags = host.read(path);
  if (!flags) {
    f.verdict = host.is_folder("/sys/class/net") ? Verdict::Fail : Verdict::NotHere;
    f.finding = host.is_folder("/sys/class/net") ? "there is no loopback interface" : "the network interfaces cannot be read";
  } else if (!is_up(*flags)) {
    f.verdict = Verdict::Fail;
    f.finding = "the loopback interface is down";
    f.evidence += " is " + *flags;
  }
  if (f.verdict == Verdict::Fail) f.fix = "ip link set lo up; ranks of one machine communicate through it";
  return f;
}

Finding host_name_finding(const NetworkFacts& facts) {
  Finding f{kArea, "host name", Verdict::Ok, facts.host + " is " + facts.address, "getaddrinfo of the name of this machine"};
  if (facts.address.empty()) {
    f.verdict = Verdict::Warn;
    f.finding =
        "the name of this machine, " + facts.host + ", does not resolve to an address: ranks on several machines do not find each other";
    f.fix =
        "add the name and the address to /etc/hosts, or export GLOO_SOCKET_IFNAME=eth0 with the name of the network card; ranks of one "
        "machine do not need it";
  } else if (facts.address.starts_with("127.") || facts.address == "::1") {
    f.finding += ", which other machines cannot reach: for ranks on several machines set GLOO_SOCKET_IFNAME to the network card";
  }
  return f;
}

std::vector<Finding> interface(const HostView& host, const NetworkFacts& facts) {
  const auto set = facts.variables.find(kInterface);
  if (set == facts.variables.end()) return {};
  Finding f{kArea, kInterface, Verdict::Ok, "Gloo uses the network card " + set->second, "/sys/class/net"};
  if (!host.exists("/sys/class/net/" + set->second)) {
    f.verdict = Verdict::Fail;
    f.finding = "this machine has no network card '" + set->second + "'";
    f.fix = "set it to one of: " + join(host.list("/sys/class/net"));
  }
  return {f};
}

Finding variables(const NetworkFacts& facts) {
  std::vector<std::string> unused;
  for (const auto& [name, value] : facts.variables)
    if (!name.starts_with("GLOO_")) unused.push_back(name + "=" + value);
  Finding f{kArea, "variables", Verdict::Ok, "no variable of NCCL or HCCL is set", "the environment: NCCL_*, HCCL_*, GLOO_*"};
  if (!unused.empty()) f.finding = "set, but without an effect on collectives in host memory, which are checked here: " + join(unused);
  return f;
}

Finding processors(const NetworkFacts& facts, int most_ranks) {
  Finding f{kArea, "processors", Verdict::Ok,
            std::to_string(facts.processors) + (facts.processors == 1 ? " processor" : " processors") + " for at most " +
                std::to_string(most_ranks) + " ranks",
            "affinity and quota of this process"};
  if (most_ranks <= facts.processors) return f;
  f.verdict = Verdict::Warn;
  f.finding += ": ranks that share a processor wait for each other, and their times below are longer than with a processor for each";
  f.fix = "npu_tool doctor --dist --nproc " + std::to_string(facts.processors) + " measures as many ranks as there are processors";
  return f;
}

// Whether `allowed` ("any" or "1, 2, 4, 8") permits the number of ranks.
bool connects(const std::string& allowed, int ranks) {
  const auto numbers = detail::split(allowed, ',');
  return allowed == "any" ||
         std::any_of(numbers.begin(), numbers.end(), [&](const auto& number) { return detail::whole_number(number) == ranks; });
}

// Whether a list of 2 or 4 devices spans both rings of a server of the first generation, 0 to 3 and 4 to 7.
bool in_two_rings(const std::string& devices) {
  const auto numbers = detail::number_list(devices).value_or(std::vector<int>());
  const auto in_first = std::count_if(numbers.begin(), numbers.end(), [](int device) { return device % 8 < 4; });
  return (numbers.size() == 2 || numbers.size() == 4) && in_first > 0 && in_first < static_cast<std::ptrdiff_t>(numbers.size());
}

// Reports how many ranks HCCL connects and which dtypes it adds on this machine's chip. Empty without an NPU, or without documented limits.
std::vector<Finding> hccl(const HostView& host, const std::vector<int>& ranks) {
  const auto chip = detail::chip_here(detail::ascend_facts(host));
  if (!chip || chip->ranks.empty()) return {};
  Finding f{kArea, "HCCL", Verdict::Ok,
            "on this chip, HCCL connects " + (chip->ranks == "any" ? "any number of" : chip->ranks) + " ranks of a machine and adds " +
                chip->sums + (chip->bf16 ? "" : "; gradients are not exchanged in bf16"),
            chip->prefix + " (" + chip->family + "), table of chips"};
  std::vector<std::string> refused;
  for (const int count : ranks)
    if (!connects(chip->ranks, count)) refused.push_back(std::to_string(count));
  const auto devices = host.variable("ASCEND_RT_VISIBLE_DEVICES");
  if (!refused.empty()) {
    f.verdict = Verdict::Fail;
    f.finding = join(refused) + " ranks on this machine cannot train on its NPUs: HCCL connects " + chip->ranks;
    f.fix = "trainer.devices=N with one of these numbers; with dist.backend=gloo gradients travel through host memory, among any number";
  } else if (chip->ranks == "1, 2, 4, 8" && in_two_rings(devices)) {
    f.verdict = Verdict::Fail;
    f.finding = "2 or 4 ranks must be in one of the rings 0-3 and 4-7, which HCCL does not connect for them";
    f.evidence += "; ASCEND_RT_VISIBLE_DEVICES=" + devices;
    f.fix = "export ASCEND_RT_VISIBLE_DEVICES=0,1 or 0,1,2,3";
  }
  return {f};
}

}  // namespace

NetworkFacts network_facts() {
  NetworkFacts out;
  out.host = host_name();
  out.address = address_of(out.host);
  out.processors = detail::cpu_facts(HostView::live()).usable();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equal = text.find('=');
    for (const char* prefix : {"GLOO_", "HCCL_", "NCCL_"})
      if (equal != text.npos && text.starts_with(prefix)) out.variables.emplace(text.substr(0, equal), text.substr(equal + 1, 200));
  }
  try {
    const auto launch = launch_of_environment();
    out.launch = launch.world_size == 1 ? "this process was started alone"
                                        : "rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.world_size) +
                                              ", started by " + launch.launcher;
  } catch (const Error& e) {
    out.launch_problem = without_hint(e.what());
  }
  return out;
}

std::vector<Finding> check_dist_environment(const HostView& host, const NetworkFacts& facts, const std::vector<int>& ranks) {
  std::vector<Finding> out{launch(facts), loopback(host), host_name_finding(facts)};
  for (auto& f : interface(host, facts)) out.push_back(std::move(f));
  out.push_back(variables(facts));
  out.push_back(processors(facts, ranks.empty() ? 1 : *std::max_element(ranks.begin(), ranks.end())));
  for (auto& f : hccl(host, ranks)) out.push_back(std::move(f));
  return out;
}

}  // namespace npu_train

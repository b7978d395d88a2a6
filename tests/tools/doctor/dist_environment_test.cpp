#include "testing.hpp"

#include "fake_host.hpp"
#include "npu_train/tools/doctor/dist_environment.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct Network {
  FakeHost host;
  NetworkFacts facts{.host = "node7", .address = "10.0.0.7", .launch = "this process was started alone", .processors = 8};

  Network() {
    host.write("/sys/class/net/lo/flags", "0x9\n");
    host.write("/sys/class/net/eth0/flags", "0x1003\n");
  }
  Finding finding(const std::string& name, int ranks = 4) const {
    return finding_of(check_dist_environment(host.view(), facts, ranks), name);
  }
};

}  // namespace

TEST_CASE("a machine on which ranks find each other") {
  const Network n;
  for (const auto& f : check_dist_environment(n.host.view(), n.facts, 4)) {
    CHECK_MESSAGE((f.verdict == Verdict::Ok), f.name);
    CHECK(!f.finding.empty());
    CHECK(!f.evidence.empty());
  }
  CHECK(has(n.finding("host name").finding, "node7 is 10.0.0.7"));
}

TEST_CASE("what the environment lacks") {
  Network n;
  SUBCASE("a name that does not resolve") {
    n.facts.address = "";
    CHECK((n.finding("host name").verdict == Verdict::Warn));
    CHECK(has(n.finding("host name").fix, "/etc/hosts"));
  }
  SUBCASE("a name that other machines take for their own") {
    n.facts.address = "127.0.1.1";
    CHECK(has(n.finding("host name").finding, "GLOO_SOCKET_IFNAME"));
  }
  SUBCASE("a loopback interface that is down") {
    n.host.write("/sys/class/net/lo/flags", "0x8\n");
    CHECK((n.finding("loopback").verdict == Verdict::Fail));
    CHECK(has(n.finding("loopback").fix, "ip link set lo up"));
  }
  SUBCASE("no loopback interface") {
    n.host.remove("/sys/class/net/lo");
    CHECK((n.finding("loopback").verdict == Verdict::Fail));
  }
  SUBCASE("no access to the interfaces is no failure") {
    n.host.remove("/sys/class/net");
    CHECK((n.finding("loopback").verdict == Verdict::NotHere));
  }
  SUBCASE("variables of a launcher that contradict each other") {
    n.facts.launch_problem = "RANK is 3 and WORLD_SIZE is 2";
    CHECK((n.finding("launch").verdict == Verdict::Fail));
    CHECK(has(n.finding("launch").finding, "RANK is 3"));
  }
  SUBCASE("a network card that does not exist") {
    n.facts.variables = {{"GLOO_SOCKET_IFNAME", "ib0"}};
    CHECK((n.finding("GLOO_SOCKET_IFNAME").verdict == Verdict::Fail));
    CHECK(has(n.finding("GLOO_SOCKET_IFNAME").fix, "eth0"));
    n.facts.variables = {{"GLOO_SOCKET_IFNAME", "eth0"}};
    CHECK((n.finding("GLOO_SOCKET_IFNAME").verdict == Verdict::Ok));
  }
  SUBCASE("variables without an effect") {
    n.facts.variables = {{"HCCL_IF_IP", "10.0.0.7"}, {"NCCL_DEBUG", "INFO"}};
    CHECK(has(n.finding("variables").finding, "HCCL_IF_IP=10.0.0.7, NCCL_DEBUG=INFO"));
  }
  SUBCASE("more ranks than processors") {
    CHECK((n.finding("processors", 9).verdict == Verdict::Warn));
    CHECK((n.finding("processors", 8).verdict == Verdict::Ok));
  }
}

TEST_CASE("the facts of this process") {
  const auto facts = network_facts();
  CHECK(!facts.host.empty());
  CHECK(facts.processors >= 1);
  CHECK(facts.launch_problem == "");
}

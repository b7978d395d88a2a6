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
    return finding_of(check_dist_environment(host.view(), facts, {1, ranks}), name);
  }
};

}  // namespace

TEST_CASE("a machine on which ranks find each other") {
  const Network n;
  for (const auto& f : check_dist_environment(n.host.view(), n.facts, {1, 4})) {
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

TEST_CASE("a server of the first generation connects 1, 2, 4 or 8 NPUs, and adds no bf16") {
  Machine m;
  make_ascend_box(m);
  const NetworkFacts facts{.host = "node7", .address = "10.0.0.7", .launch = "this process was started alone", .processors = 64};
  const auto hccl = [&](const std::vector<int>& ranks) { return finding_of(check_dist_environment(m.host.view(), facts, ranks), "HCCL"); };
  CHECK(has(hccl({1, 3, 8}).finding, "connects any number of ranks of a machine and adds int8, int16, int32, int64, fp16, bf16, fp32"));
  CHECK((hccl({1, 3, 8}).verdict == Verdict::Ok));
  CHECK((hccl({16}).verdict == Verdict::Ok));
  m.host.environment["ASCEND_RT_VISIBLE_DEVICES"] = "3,4";
  CHECK((hccl({2}).verdict == Verdict::Ok));
  m.host.commands["npu-smi info"] = says(smi_table(smi_chip(0, "910A", "OK", "3165 / 32768"), ""));
  CHECK((hccl({2}).verdict == Verdict::Fail));
  CHECK(has(hccl({2}).finding, "the rings 0-3 and 4-7"));
  for (const char* devices : {"0,1,2,3", "4,5,6,7", "5", "0,1,2,3,4,5,6,7", ""}) {
    CAPTURE(devices);
    m.host.environment["ASCEND_RT_VISIBLE_DEVICES"] = devices;
    const auto found = hccl({1, 2, 4, 8});
    CHECK((found.verdict == Verdict::Ok));
    CHECK(has(found.finding,
              "connects 1, 2, 4, 8 ranks of a machine and adds int8, int32, int64, fp16, fp32; gradients are not exchanged in bf16"));
  }
  const auto refused = hccl({1, 2, 3, 6});
  CHECK((refused.verdict == Verdict::Fail));
  CHECK(has(refused.finding, "3, 6 ranks on this machine cannot train on its NPUs: HCCL connects 1, 2, 4, 8"));
  CHECK(has(refused.fix, "dist.backend=gloo"));
}

TEST_CASE("the facts of this process") {
  const auto facts = network_facts();
  CHECK(!facts.host.empty());
  CHECK(facts.processors >= 1);
  CHECK(facts.launch_problem == "");
}

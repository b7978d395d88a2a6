// One rank of a test: dist_rank SCENARIO [key=value ...] [/ [key=value ...] ...]. Prints lines that the test compares; an Error is printed
// and is the exit status. Each slash begins a variant: the scenario runs again with its values, after a line with the slash.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/process.hpp"
#include "npu_train/dist/data_parallel.hpp"

using namespace npu_train;

namespace {

using Arguments = std::map<std::string, std::string>;

std::string text(const Arguments& args, const char* key, const char* otherwise) {
  const auto found = args.find(key);
  return found == args.end() ? otherwise : found->second;
}
int64_t number(const Arguments& args, const char* key, int64_t otherwise) {
  const auto found = args.find(key);
  return found == args.end() ? otherwise : std::stoll(found->second);
}

at::Tensor draw(at::IntArrayRef sizes, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator) * at::randn(sizes, generator).exp();
}

// Returns parameters of several sizes, dtypes and memory formats; the larger ones need several of the tests' buckets.
ParameterSet parameters() {
  ParameterSet out;
  const auto add = [&](const char* name, at::Tensor value) { out.add({.name = name, .value = value.requires_grad_(true)}); };
  add("conv", draw({8, 3, 3, 3}, 1).contiguous(at::MemoryFormat::ChannelsLast));
  add("bias", draw({7}, 2));
  add("matrix", draw({61, 33}, 3));
  add("transposed", draw({20, 30}, 4).t());
  add("half", draw({129}, 5).to(at::kHalf));
  add("bfloat", draw({64, 5}, 6).to(at::kBFloat16));
  add("number", draw({}, 7));
  add("unused", draw({11}, 8));
  add("sometimes", draw({300}, 9));
  add("double", draw({65}, 10).to(at::kDouble));
  return out;
}

bool integers = false;  // gradients are small integers, whose sums are exact in every order

// Returns the loss of global micro-batch `j` of window `w`. Its gradients are numbers of any size and sign, among them zeros of both signs.
at::Tensor loss_of(const ParameterSet& parameters, int64_t w, int64_t j) {
  at::Tensor loss;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& p = parameters[i];
    if (p.name == "unused" || (p.name == "sometimes" && (j != 1 || w == 1))) continue;
    auto factor = draw(p.value.sizes(), static_cast<uint64_t>(1000 * w + 100 * j) + 11 * i);
    factor = at::where(factor.abs() < 0.05, factor * 0.0, factor);
    if (integers) factor = (2 * factor).round().clamp(-8, 8);
    const auto term = (p.value * factor.to(p.value.scalar_type())).sum().to(at::kFloat);
    loss = loss.defined() ? loss + term : term;
  }
  return loss;
}

void print_gradients(const ParameterSet& parameters) {
  for (const auto& p : parameters) {
    const auto& grad = p.value.grad();
    std::printf("%s %016llx\n", p.name.c_str(), grad.defined() ? static_cast<unsigned long long>(digest(grad)) : 0ULL);
    if (grad.defined() && grad.is_view()) std::printf("%s is a view, which zero_grad() of torch::optim refuses\n", p.name.c_str());
    if (grad.defined() && grad.strides() != p.value.strides()) std::printf("%s has other strides\n", p.name.c_str());
  }
}

DistOptions options_of(const Arguments& args) {
  return {.reduction = text(args, "reduction", "ordered"),
          .group_size = text(args, "group_size", "none"),
          .reduce = text(args, "reduce", "window"),
          .reduce_dtype = text(args, "reduce_dtype", "fp32"),
          .compression = text(args, "compression", "none"),
          .shard_by = text(args, "shard_by", "elements"),
          .bucket_mib = static_cast<double>(number(args, "bucket_kib", 4)) / 1024,
          .in_flight = number(args, "in_flight", 0),
          .timeout = static_cast<double>(number(args, "timeout", 60)),
          .debug = number(args, "debug", 0) != 0};
}

std::shared_ptr<ProcessGroup> join(const Arguments& args) { return ProcessGroup::from_environment(options_of(args)); }

// Computes for `ranks` ranks in one process, one after the other, without a group.
void one_process(const Arguments& args) {
  const auto all = parameters();
  const auto micro_batches = number(args, "micro_batches", 1) * number(args, "ranks", 1);
  for (int64_t w = 0; w < 3; ++w) {
    all.zero_grad();
    for (int64_t j = 0; j < micro_batches; ++j) loss_of(all, w, j).backward();
    print_gradients(all);
  }
}

// Computes the result of ranks with one micro-batch each whose fp32 gradients are sent as 16-bit `values`: rounded before and after the
// sum.
void one_process_in_16_bits(const Arguments& args) {
  const auto dtype = text(args, "values", "bf16") == "fp16" ? at::kHalf : at::kBFloat16;
  const auto all = parameters();
  for (int64_t w = 0; w < 3; ++w) {
    std::vector<at::Tensor> sums(all.size());
    for (int64_t j = 0; j < number(args, "ranks", 1); ++j) {
      all.zero_grad();
      loss_of(all, w, j).backward();
      for (size_t i = 0; i < all.size(); ++i) {
        auto grad = all[i].value.grad();
        if (!grad.defined()) continue;
        if (grad.scalar_type() == at::kFloat) grad = grad.to(dtype).to(at::kFloat);
        sums[i] = sums[i].defined() ? sums[i] + grad : grad;
      }
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (sums[i].defined() && sums[i].scalar_type() == at::kFloat) sums[i] = sums[i].to(dtype).to(at::kFloat);
      all[i].value.mutable_grad() = sums[i];
    }
    print_gradients(all);
  }
}

Sharding sharding_of(const Arguments& args) {
  const auto name = text(args, "sharding", "none");
  return name == "optimizer" ? Sharding::Optimizer : name == "gradients" ? Sharding::Gradients : Sharding::None;
}

// Gives each parameter the complete gradient, of which the ranks have slices.
void gather_gradients(GradientReducer& reducer, const ParameterSet& all) {
  std::vector<at::Tensor> slices, whole;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& own = reducer.own()[i].value;
    if (all[i].value.grad().defined()) std::printf("%s has a gradient in addition to that of its slice\n", all[i].name.c_str());
    slices.push_back(own.grad().defined() ? own.grad() : at::zeros_like(own.detach()));
    whole.push_back(own.grad().defined() ? at::empty_like(all[i].value.detach()) : at::Tensor());
  }
  reducer.gather(slices, whole);
  for (size_t i = 0; i < all.size(); ++i) all[i].value.mutable_grad() = whole[i];
}

// Reduces gradients. With short=RANK, that rank has fewer micro-batches than the others.
void gradients(const Arguments& args) {
  const auto group = join(args);
  const auto all = parameters();
  const auto sharding = sharding_of(args);
  GradientReducer reducer(all, group, options_of(args), sharding);
  const auto micro_batches = number(args, "micro_batches", 1);
  const auto own = number(args, "short", -1) == group->rank() ? micro_batches - 1 : micro_batches;
  for (int64_t w = 0; w < 3; ++w) {
    all.zero_grad();
    reducer.own().zero_grad();
    reducer.begin_window(own);
    for (int64_t m = 0; m < own; ++m) {
      reducer.begin_backward(m + 1 == own);
      loss_of(all, w, m * group->size() + group->rank()).backward();
    }
    const auto sums = reducer.finish({1.0 + group->rank(), 0.1});
    if (sharding != Sharding::None) gather_gradients(reducer, all);
    print_gradients(all);
    std::printf("sums %.17g %.17g\n", sums[0], sums[1]);
  }
}

// Doubles each rank's own slices, and gathers them. Every rank checks the result, and prints how the elements are divided.
void shards(const Arguments& args) {
  const at::NoGradGuard no_grad;
  const auto group = join(args);
  auto all = parameters();
  all.add({.name = "large", .value = draw({1000, 800}, 12).requires_grad_(true)});
  all.add({.name = "tied", .value = all[2].value});
  GradientReducer reducer(all, group, options_of(args), Sharding::Optimizer);
  std::vector<at::Tensor> expected;
  for (const auto& p : all) expected.push_back(p.value.detach() * 2);
  int64_t elements = 0, divided = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& own = reducer.own()[i];
    divided += own.value.numel() > 0 && own.value.numel() < all[i].value.numel() ? 1 : 0;
    check(own.name == all[i].name && own.value.dim() == 1 && own.value.is_leaf() && own.whole().is_same(all[i].value) &&
              own.value.is_alias_of(all[i].value) && own.begin % 64 == 0,
          ErrorKind::CheckFailed, "shards", own.name, " ", own.value.sizes(), " at ", own.begin);
    elements += own.value.numel();
    own.value.detach().mul_(2);
  }
  reducer.gather_parameters();
  for (size_t i = 0; i < all.size(); ++i)
    check(digest(all[i].value) == digest(at::empty_like(all[i].value.detach()).copy_(expected[i])), ErrorKind::CheckFailed, "shards",
          all[i].name, " is not what all ranks have made of it");
  check(reducer.own().aliases() == all.aliases(), ErrorKind::CheckFailed, "shards", "the tied name is lost");
  try {
    reducer.gather(all.values(), all.values());
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
  }
  std::printf("parameters on several ranks: %lld\n", static_cast<long long>(divided));
  std::printf("parameters are those of rank 0 to the bit; elements %lld of %lld\n", static_cast<long long>(elements),
              static_cast<long long>(all.numel()));
}

void agreement(const Arguments& args) {
  const auto group = join(args);
  DataParallelStrategy strategy(group, options_of(args));
  const auto rank = strategy.ranks().rank();
  std::printf("%s\n", strategy.ranks().from_main("from " + std::to_string(rank)).c_str());
  for (const auto& t : strategy.ranks().gather(std::string(static_cast<size_t>(rank) * 700, static_cast<char>('a' + rank))))
    std::printf("%zu%c ", t.size(), t.empty() ? '-' : t.back());
  const auto sums = strategy.ranks().sums({1e16, 1.0 * rank, -1e16});
  std::printf("\n%.17g %.17g %.17g\n", sums[0], sums[1], sums[2]);
  StepAgreement step{
      .found_inf = at::full({}, rank == 1 ? 1.0 : 0.0), .squares = at::full({}, 5.0), .sums = at::full({2}, 0.1F * (rank + 1))};
  strategy.decide(rank == 1 ? 4U : 1U);
  strategy.agree(step);
  std::printf("%g %g %.9g %u\n", step.found_inf.item<double>(), step.squares.item<double>(), step.sums[0].item<double>(),
              strategy.decide(0));
  auto weights = at::full({3, 2}, rank + 7.0).t();
  strategy.broadcast({weights});
  std::printf("%g\n", weights.sum().item<double>());
  strategy.ranks().barrier();
}

// Makes two exchanges and a gather at once, of tensors that exceed every socket's buffer.
void large_messages(const Arguments& args) {
  const auto group = join(args);
  const int64_t part = number(args, "part", 1 << 20), ranks = group->size(), rank = group->rank();
  std::vector<at::Tensor> in, out;
  std::vector<std::unique_ptr<Collective>> under_way;
  for (const int64_t number : {0, 1}) {
    in.push_back(at::arange(part * ranks, at::kFloat) + static_cast<double>(100 * rank + number));
    out.push_back(at::empty_like(in.back()));
    under_way.push_back(group->all_to_all(out.back(), in.back()));
  }
  in.push_back(at::arange(part, at::kFloat) + static_cast<double>(rank));
  out.push_back(at::empty({part * ranks}, at::kFloat));
  under_way.push_back(group->all_gather(out.back(), in.back()));
  for (const auto& collective : under_way) collective->wait();
  bool right = true;
  for (int64_t r = 0; r < ranks; ++r) {
    const auto own = at::arange(part * rank, part * (rank + 1), at::kFloat);
    for (size_t i : {0, 1}) right &= out[i].narrow(0, r * part, part).equal(own + static_cast<double>(100 * r + static_cast<int64_t>(i)));
    right &= out[2].narrow(0, r * part, part).equal(at::arange(part, at::kFloat) + static_cast<double>(r));
  }
  std::printf("%s\n", right ? "all parts are right" : "a part is wrong");
}

void other_parameters(const Arguments& args) {
  const auto group = join(args);
  auto all = parameters();
  const bool differs = group->rank() == number(args, "rank", 1);
  if (differs && number(args, "computed", 0) != 0) all[2].computed = all[2].value.detach().to(at::kBFloat16).requires_grad_(true);
  if (differs && number(args, "computed", 0) == 0) all[2].value = at::zeros({60, 33}).requires_grad_(true);
  GradientReducer reducer(all, group);
}

void other_calls(const Arguments& args) {
  const auto group = join(args);
  DataParallelStrategy strategy(group, options_of(args), c10::kCPU, sharding_of(args));
  const auto own = strategy.setup(parameters());
  if (group->rank() == 1)
    strategy.ranks().sums({1});
  else if (strategy.shards())
    strategy.gather_slices(own.values(), std::vector<at::Tensor>(own.size()));
  else
    strategy.ranks().from_main("text");
}

// Without shards, a rank fills a model from its averages on its own, as for a prediction of one rank.
void alone(const Arguments& args) {
  const auto group = join(args);
  DataParallelStrategy strategy(group, options_of(args));
  const auto all = strategy.setup(parameters());
  if (group->rank() == 0) {
    std::vector<at::Tensor> averages;
    for (const auto& p : all) averages.push_back(p.value.detach() * 2);
    strategy.gather_slices(averages, all.values());
    for (size_t i = 0; i < all.size(); ++i)
      check(at::equal(all[i].value.detach(), averages[i]), ErrorKind::CheckFailed, "alone", all[i].name, " was not filled");
  }
  group->barrier("end");
  std::printf("both are done\n");
}

// Rank 0 serves the store. The other rank already joins its next group while rank 0 still holds the previous one.
void several_groups(const Arguments& args) {
  for (int k = 0; k < 4; ++k) {
    const auto group = join(args);
    group->barrier("group " + std::to_string(k));
    if (group->rank() == 0) ::usleep(200'000);
  }
  std::printf("four groups\n");
}

// One rank sends another number of elements.
void other_sizes(const Arguments& args) {
  const auto group = join(args);
  const auto n = group->rank() == 1 ? 8 : 4;
  const auto in = at::zeros({n}), out = at::zeros({n});
  group->all_to_all(out, in)->wait();
}

// Changes the weights of one rank outside of the training, by one bit.
void changed_weight(const Arguments& args) {
  const auto group = join(args);
  auto options = options_of(args);
  options.check_every = 2;
  DataParallelStrategy strategy(group, options, c10::kCPU, sharding_of(args));
  const auto all = parameters();
  strategy.setup(all);
  for (int64_t step = 1; step <= 4; ++step) {
    strategy.begin_window(1);
    strategy.backward(loss_of(all, 0, group->rank()), true);
    strategy.finish_gradients({.loss = 1, .samples = 1});
    if (strategy.shards()) strategy.finish_step();  // comes before the change, so that no gather overwrites it
    if (step == 3 && group->rank() == 1) {
      const at::NoGradGuard no_grad;
      all.find("bias")->value.detach().narrow(0, 5, 1).view(at::kInt).bitwise_xor_(1);
    }
    if (!strategy.shards()) strategy.finish_step();
    std::printf("step %lld\n", static_cast<long long>(step));
  }
}

// Gives rank `rank` an operator that the others do not have, in the second of four steps, and `samples` more samples.
void other_operators(const Arguments& args) {
  const auto group = join(args);
  auto options = options_of(args);
  options.check_every = 2;
  DataParallelStrategy strategy(group, options);
  const auto all = strategy.setup(parameters());
  const bool differs = group->rank() == number(args, "rank", -1), late = group->rank() == number(args, "late", -1);
  for (int64_t step = 1; step <= 4; ++step) {
    strategy.begin_window(1);
    auto loss = loss_of(all, 0, 0);
    if (differs && step == 2) loss = loss.exp();
    if (late) ::usleep(200000);  // until the others' numbers have arrived, so that this rank alone adds them during its backward pass
    strategy.backward(loss, true);
    strategy.finish_gradients({.loss = 1, .samples = differs ? 1.0 + static_cast<double>(number(args, "samples", 0)) : 1.0});
    strategy.finish_step();
  }
  std::printf("four steps\n");
}

// Waits until rank 0, which serves the store, has ended.
void wait_for_end_of_store() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(launch_of_environment().port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (bool is_there = true; is_there;) {
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    is_there = ::connect(s, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(s);
    ::usleep(100000);
  }
}

// Lets rank 0 work longer than a collective may wait, or fail.
void main_first(const Arguments& args) {
  const auto group = join(args);
  const auto how = text(args, "how", "work");
  group->barrier("start");
  group->main_first([&] {
    if (group->rank() != 0) return;
    if (how == "throw") throw Error(ErrorKind::Data, "dist_rank", "an archive that cannot be unpacked");
    if (how == "kill") ::raise(SIGKILL);
    ::sleep(static_cast<unsigned>(number(args, "timeout", 60)) + 1);
    std::printf("rank 0 is done\n");
  });
  group->barrier("end");
  std::printf("all are done\n");
}

// Stops this process. A child wakes it up, so that no test leaves it behind.
void stop_until_the_end_of_the_store() {
  const auto self = ::getpid();
  if (::fork() == 0) {
    wait_for_end_of_store();
    ::kill(self, SIGCONT);
    ::_exit(0);
  }
  ::raise(SIGSTOP);
}

// Ends or blocks one rank in the middle of a reduction, as `how` says.
void failure(const Arguments& args) {
  const auto group = join(args);
  DataParallelStrategy strategy(group, options_of(args));
  const auto all = strategy.setup(parameters());
  for (int64_t w = 0; w < 2; ++w) {
    strategy.begin_window(1);
    if (w == 1 && group->rank() == number(args, "rank", 2)) {
      const auto how = text(args, "how", "kill");
      if (how == "kill") ::raise(SIGKILL);
      if (how == "stop") stop_until_the_end_of_the_store();
      if (how == "hang") wait_for_end_of_store();
      if (how == "throw") throw Error(ErrorKind::Data, "dist_rank", "a sample that cannot be read");
    }
    strategy.backward(loss_of(all, w, group->rank()), true);
    strategy.finish_gradients({.loss = 1, .samples = 1});
    strategy.finish_step();
  }
}

}  // namespace

int main(int argc, char** argv) {
  ScopedLogSink sink(make_standard_sink());
  at::set_num_threads(1);
  std::vector<Arguments> variants(1);
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "/")
      variants.emplace_back();
    else
      variants.back()[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  const std::map<std::string, void (*)(const Arguments&)> scenarios = {{"one_process", one_process},
                                                                       {"one_process_in_16_bits", one_process_in_16_bits},
                                                                       {"gradients", gradients},
                                                                       {"shards", shards},
                                                                       {"agreement", agreement},
                                                                       {"large_messages", large_messages},
                                                                       {"alone", alone},
                                                                       {"other_parameters", other_parameters},
                                                                       {"other_calls", other_calls},
                                                                       {"several_groups", several_groups},
                                                                       {"main_first", main_first},
                                                                       {"failure", failure},
                                                                       {"changed_weight", changed_weight},
                                                                       {"other_operators", other_operators},
                                                                       {"other_sizes", other_sizes}};
  try {
    for (size_t i = 0; i < variants.size(); ++i) {
      if (i > 0) std::printf("/\n");
      integers = number(variants[i], "integers", 0) != 0;
      scenarios.at(argv[1])(variants[i]);
    }
  } catch (const Error& e) {
    std::printf("error %d %s\n", e.exit_code(), e.what());
    std::fflush(stdout);
    ::_exit(e.exit_code());
  }
  end_process(0);
}

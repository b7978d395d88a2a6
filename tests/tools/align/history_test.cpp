#include "testing.hpp"

#include "npu_train/tools/align/history.hpp"

#include <cmath>
#include <functional>

#include "bounded.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "tools/align/curves.hpp"

using namespace npu_train;
using npu_train::testing::any_has;
using npu_train::testing::curve;
using npu_train::testing::error_of;
using npu_train::testing::falling;
using npu_train::testing::grows_in_proportion;
using npu_train::testing::has;
using npu_train::testing::kInf;
using npu_train::testing::kNaN;
using npu_train::testing::TempDir;

namespace {

History history_of(const std::string& content, const HistoryColumns& columns = {}) {
  const TempDir dir;
  write_file_atomic(dir / "log", content);
  return read_history(dir / "log", columns);
}

Error history_error(const std::string& content, const HistoryColumns& columns = {}) {
  const auto e = error_of([&] { history_of(content, columns); });
  CHECK(e.kind() == ErrorKind::Data);
  return e;
}

using Steps = std::vector<int64_t>;
using Values = std::vector<double>;

}  // namespace

TEST_CASE("history: CSV as Python scripts write it") {
  const auto h = history_of("step, loss, lr, note\r\n0, 2.30, 0.1, start\r\n10, 2.1, 0.1,\r\n20, nan, 0.05,\r\n");
  CHECK((h.step == Steps{0, 10, 20}));
  CHECK((h.loss[0] == 2.30 && h.loss[1] == 2.1 && std::isnan(h.loss[2])));
  CHECK((h.lr == Values{0.1, 0.1, 0.05}));
  CHECK(h.columns.loss == "loss");
  CHECK(h.notes.empty());
  CHECK(h.others.empty());
}

TEST_CASE("history: our metrics.csv gives the steps of training that were taken") {
  const auto h = history_of(
      "epoch,step,phase,loss,acc1,lr,grad_norm,loss_scale,skipped\n"
      "0,1,train,2.5,10,0.1,1,1024,0\n"
      "0,1,train,inf,10,0.1,inf,1024,1\n"
      "0,2,train,2.25,20,0.1,0.5,512,0\n"
      "0,2,val,9,30,,,,\n"
      "0,2,epoch,8,20,0.1,,512,1\n");
  CHECK((h.step == Steps{1, 2}));
  CHECK((h.loss == Values{2.5, 2.25}));
  CHECK((h.skipped == Steps{1}));
  CHECK((h.others.at("acc1") == Values{10, 20}));
  CHECK((h.others.at("grad_norm") == Values{1, 0.5}));
  CHECK(any_has(h.notes, "skipped"));
}

TEST_CASE("history: speed as earlier versions called it is the same column") {
  const auto before = history_of("step,loss,images_per_second\n0,2.3,100\n1,2.2,110\n");
  const auto now = history_of("step,loss,samples_per_second\n0,2.3,100\n1,2.2,110\n");
  CHECK((before.others.at("samples_per_second") == Values{100, 110}));
  CHECK((before.others == now.others));
}

TEST_CASE("history: rows of one step are put together, as Lightning writes them") {
  const auto h = history_of("epoch,lr-SGD,step,train_loss,val_loss\n,0.1,9,,\n0,,9,1.5,\n0,,9,,1.75\n1,,19,1.25,\n");
  CHECK((h.step == Steps{9, 19}));
  CHECK((h.loss == Values{1.5, 1.25}));
  CHECK(h.columns.lr == "lr-SGD");
  CHECK((h.lr[0] == 0.1 && std::isnan(h.lr[1])));
  CHECK((h.others.at("val_loss")[0] == 1.75 && std::isnan(h.others.at("val_loss")[1])));
  CHECK(h.notes.empty());
}

TEST_CASE("history: repeated and unsorted steps") {
  const auto h = history_of("iteration,training_loss\n3,1\n1,3\n2,2\n3,0.5\n");
  CHECK((h.step == Steps{1, 2, 3}));
  CHECK((h.loss == Values{3, 2, 0.5}));
  CHECK(any_has(h.notes, "1 row with a repeated step"));
  CHECK(any_has(h.notes, "sorted"));
}

TEST_CASE("history: batch numbers that restart in each epoch are continued") {
  const auto h = history_of("epoch,batch,loss\n0,0,4\n0,50,3\n1,0,2\n1,50,1\n2,0,0.5\n");
  CHECK((h.step == Steps{0, 50, 51, 101, 102}));
  CHECK((h.loss == Values{4, 3, 2, 1, 0.5}));
  CHECK(any_has(h.notes, "2 times"));
  // a resumed run goes back within an epoch and repeats steps
  CHECK((history_of("epoch,step,loss\n0,1,4\n0,2,3\n0,2,2\n1,3,1\n").loss == Values{4, 2, 1}));
}

TEST_CASE("history: trainer_state.json of Hugging Face") {
  const auto h = history_of(R"({"best_metric": null, "epoch": 1.0, "global_step": 20, "log_history": [
    {"epoch": 0.5, "grad_norm": 1.5, "learning_rate": 5e-05, "loss": 2.5, "step": 10},
    {"epoch": 1.0, "grad_norm": NaN, "learning_rate": 0.0, "loss": NaN, "step": 20},
    {"epoch": 1.0, "eval_loss": 1.0, "step": 20},
    {"epoch": 1.0, "step": 20, "total_flos": 1e15, "train_loss": 99.0, "train_runtime": 3.0}], "max_steps": 20})");
  CHECK((h.step == Steps{10, 20}));
  CHECK((h.loss[0] == 2.5 && std::isnan(h.loss[1])));
  CHECK((h.lr == Values{5e-05, 0}));
  CHECK(h.others.at("train_loss")[1] == 99);
  CHECK(h.others.at("grad_norm")[0] == 1.5);
}

TEST_CASE("history: our history.json, an array, lists by name, and lines") {
  const auto ours =
      history_of(R"({"epochs": [{"epoch": 0, "global_step": 5, "train": {"loss": 2.0}, "val": {"loss": 3.0}, "lr": 0.1, "skipped": 1},
    {"epoch": 1, "global_step": 10, "train": {"loss": "nan"}, "val": {}, "lr": 0.01, "skipped": 0}], "reason": "max_epochs reached"})");
  CHECK((ours.step == Steps{5, 10}));
  CHECK((ours.loss[0] == 2 && std::isnan(ours.loss[1])));
  CHECK(ours.columns.loss == "train/loss");
  CHECK(ours.others.at("val/loss")[0] == 3);
  CHECK(ours.skipped.empty());

  const auto array =
      history_of(R"([{"_step": 0, "train/loss": 1.5}, {"_step": 1.0, "train/loss": "Infinity"}, {"_step": 2, "train/loss": null}])");
  CHECK((array.step == Steps{0, 1}));
  CHECK((array.loss == Values{1.5, kInf}));

  const auto lists = history_of(R"({"params": {"epochs": 2}, "history": {"loss": [2.0, 1.0, 0.5], "lr": [0.1, 0.1]}})");
  CHECK((lists.step == Steps{0, 1, 2}));
  CHECK((lists.loss == Values{2, 1, 0.5}));
  CHECK((lists.lr[1] == 0.1 && std::isnan(lists.lr[2])));
  CHECK(any_has(lists.notes, "numbered from 0"));

  const auto lines = history_of(
      "{\"mode\": \"train\", \"iter\": 50, \"loss\": 1.5, \"lr\": 0.1, \"data\": {\"time\": 0.5}}\n\n"
      "{\"mode\": \"val\", \"iter\": 50, \"loss\": 7}\n{\"mode\": \"train\", \"iter\": 100, \"loss\": NaN}\n");
  CHECK((lines.step == Steps{50, 100}));
  CHECK((lines.loss[0] == 1.5 && std::isnan(lines.loss[1])));
  CHECK(lines.others.at("data/time")[0] == 0.5);
  CHECK((history_of("{\"step\": 1, \"loss\": 2}\n").loss == Values{2}));
}

TEST_CASE("history: a run that ended in its first epoch") {
  const auto end = history_of(R"({"epochs": [], "global_step": 2, "final_val": {"loss": 2.5, "acc1": 3}})");
  CHECK((end.step == Steps{2} && end.loss == Values{2.5} && end.of_epochs));
  CHECK(any_has(end.notes, "the run ended in its first epoch"));
  CHECK(has(history_error(R"({"epochs": [], "global_step": 2, "final_val": {}})").what(), "hint: metrics.csv of the run's folder"));
  const auto val = history_of("epoch,step,phase,loss\n0,2,val,2.5\n");
  CHECK((val.step == Steps{2} && any_has(val.notes, "no row is from training")));
}

TEST_CASE("history: complete epochs of our metrics.csv") {
  const std::string csv = "epoch,step,phase,loss,skipped\n0,1,train,3,0\n0,2,train,1,0\n0,2,val,9,\n0,2,epoch,2,1\n";
  const TempDir dir;
  write_file_atomic(dir / "metrics.csv", csv);
  const auto steps = read_history(dir / "metrics.csv"), epochs = read_history(dir / "metrics.csv", {}, HistoryRows::Epochs);
  CHECK((steps.loss == Values{3, 1} && !steps.of_epochs));
  CHECK((epochs.loss == Values{2} && epochs.step == Steps{2} && epochs.of_epochs));
  CHECK((history_of("step,phase,loss\n2,epoch,2\n2,val,9\n").loss == Values{2}));  // the steps of training were logged too rarely
}

TEST_CASE("history: a truncated file is read up to its end") {
  const std::string csv = "step,loss\n0,2.5\n1,2.25\n2,2.";
  CHECK((history_of(csv).loss == Values{2.5, 2.25, 2}));
  CHECK(any_has(history_of(csv).notes, "may be truncated"));
  const auto half = history_of("step,loss,lr\n0,2.5,1\n1,2.2");
  CHECK((half.loss == Values{2.5}));
  CHECK(any_has(half.notes, "omitted"));
  const auto lines = history_of("{\"step\": 0, \"loss\": 2}\n{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"lo");
  CHECK((lines.loss == Values{2, 1}));
  CHECK(any_has(lines.notes, "truncated"));
  const auto json = history_of(R"({"log_history": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.)");
  CHECK((json.loss == Values{2}));
  CHECK(any_has(json.notes, "truncated"));
  CHECK((history_of(std::string("step,loss\n0,2\n") + std::string(100, '\0')).loss == Values{2}));
  // a file truncated anywhere is read or refused, and never gives more rows
  const std::string whole = R"([{"step": 0, "loss": 2.0, "lr": 0.1}, {"step": 1, "loss": 1.0, "lr": 0.1}])";
  for (size_t length = 0; length < whole.size(); ++length) {
    try {
      const auto h = history_of(whole.substr(0, length));
      CHECK((h.step == Steps{0} || h.step == Steps{0, 1}));
      CHECK(h.loss[0] == 2);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Data);
    }
  }
}

TEST_CASE("history: columns by other names") {
  const std::string log = "n,Objective,rate\n1,2.5,0.1\n2,2.25,0.1\n";
  const auto h = history_of(log, parse_history_columns("step=n,loss=objective,lr=rate"));
  CHECK((h.step == Steps{1, 2}));
  CHECK((h.loss == Values{2.5, 2.25}));
  CHECK((h.lr == Values{0.1, 0.1}));
  const auto e = history_error(log);
  CHECK(has(e.what(), "with a known name for the loss"));
  CHECK(has(e.what(), "n, Objective, rate"));
  CHECK(has(e.what(), "--columns"));
  CHECK(has(history_error(log, {.loss = "Objective"}).what(), "with a known name for the step"));
  CHECK(has(history_error(log, {.loss = "Objectiv"}).what(), "did you mean 'Objective'"));
  CHECK(has(history_error("step,loss\n1,hello\n").what(), "of text: loss"));
  for (const char* text : {"loss", "loss=", "x=1", "loss=a,loss=b", "=a", "step=a,,loss=b"}) {
    CAPTURE(text);
    CHECK(error_of([&] { parse_history_columns(text); }).kind() == ErrorKind::Usage);
  }
  CHECK(parse_history_columns("").loss.empty());
}

TEST_CASE("history: invalid options are refused") {
  CHECK(has(history_error("").what(), "empty"));
  CHECK(has(history_error("step,loss\n").what(), "columns of numbers: none"));
  CHECK(has(history_error("step,loss\n0.5,1\n").what(), "not a step number"));
  CHECK(has(history_error("step,loss\n1e300,1\n").what(), "not a step number"));
  CHECK(has(history_error("step,loss\n1,\n,2\n").what(), "no row has both"));
  CHECK(has(history_error("step,loss\n1,2,3\n4,5\n").what(), "cells"));
  CHECK(has(history_error("[1, 2, 3]").what(), "no list of steps"));
  CHECK(has(history_error("[]").what(), "no list of steps"));
  history_error("{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\"\n{\"step\": 3, \"loss\": 2}\n");
  history_error("{\"step\": 1, \"loss\": 2} x");
  history_error(std::string(100'000, '['));
  const TempDir dir;
  CHECK(error_of([&] { read_history(dir / "none.csv"); }).kind() == ErrorKind::Data);
  CHECK(has(error_of([&] { read_history(dir.path()); }).what(), "metrics.csv"));
  write_file_atomic(dir / "metrics.csv", "step,loss\n1,2\n");
  CHECK((read_history(dir.path()).step == Steps{1}));
}

TEST_CASE("history: equal curves") {
  const auto a = curve(50, falling);
  const auto c = compare_histories(a, a);
  CHECK(c.agrees);
  CHECK(c.rows.size() == 50);
  CHECK((c.mean_relative == 0 && c.max_relative == 0 && !c.first_unequal && !c.first_beyond && !c.diverged));
  CHECK(has(c.sentences.at(0), "equal in all digits at all 50"));
  CHECK(c.likely.empty());
}

TEST_CASE("history: numbers of a comparison") {
  const auto a = history_of("step,loss,lr\n1,2.0,0.1\n2,1.0,0.1\n3,1.1,0.1\n5,1,0.1\n");
  const auto b = history_of("step,loss,lr\n2,1.0,0.1\n3,1.0,0.2\n4,9,0.1\n5,0.001,0.1\n6,7,0.1\n");
  const auto c = compare_histories(a, b);
  REQUIRE(c.rows.size() == 3);
  CHECK((c.only_a == Steps{1}));
  CHECK((c.only_b == Steps{4, 6}));
  CHECK(c.rows[1].step == 3);
  CHECK(c.rows[1].absolute == doctest::Approx(0.1));
  CHECK(c.rows[1].relative == doctest::Approx(0.1));
  // B's level is 1, which is its first loss and its median; the small loss at step 5 counts as 0.01 of the level
  CHECK(c.rows[2].relative == doctest::Approx(0.999 / 0.01));
  CHECK(c.mean_relative == doctest::Approx((0 + 0.1 + 99.9) / 3));
  CHECK(c.last_quarter_relative == doctest::Approx(99.9));
  CHECK((c.last_mean_a == 1 && c.last_mean_b == 0.001));
  CHECK((c.first_unequal == 3 && c.first_beyond == 3 && c.diverged == 3 && c.first_lr == 3 && c.max_step == 5));
  CHECK(c.lr_compared);
  CHECK_FALSE(c.agrees);
  CHECK(any_has(c.notes, "B continues to step 6, A ends at step 5"));
  CHECK(any_has(c.notes, "1 step is logged by A only"));
}

TEST_CASE("history: the rule of 2 % of the mean") {
  const auto b = curve(200, falling);
  const auto by = [&](double share) { return curve(200, [share](int64_t i) { return falling(i) * (1 + (i % 2 == 0 ? share : -share)); }); };
  CHECK(compare_histories(by(0.019), b).agrees);
  CHECK_FALSE(compare_histories(by(0.021), b).agrees);
  CHECK(compare_histories(by(0.021), b, {.mean_rtol = 0.03}).agrees);
  // within 2 % in the mean over the complete run, but not at its end
  const auto late = curve(200, [](int64_t i) { return falling(i) * (i < 170 ? 1 : 1.1); });
  const auto c = compare_histories(late, b);
  CHECK(c.mean_relative < 0.02);
  CHECK_FALSE(c.agrees);
  // a single batch does not change the verdict, but is reported
  const auto spike = compare_histories(curve(200, [](int64_t i) { return falling(i) * (i == 90 ? 1.5 : 1); }), b);
  CHECK(spike.agrees);
  CHECK((spike.first_beyond == 90 && spike.max_step == 90 && !spike.diverged));
}

TEST_CASE("history: not finite on one side") {
  const auto b = curve(40, falling);
  for (const double value : {kNaN, kInf}) {
    const auto a = curve(40, [value](int64_t i) { return i < 30 ? falling(i) : value; });
    for (const bool swapped : {false, true}) {
      const auto c = swapped ? compare_histories(b, a) : compare_histories(a, b);
      CHECK_FALSE(c.agrees);
      CHECK(c.first_not_finite == 30);
      CHECK(std::isinf(c.max_relative));
      CHECK(c.mean_relative == 0);
      CHECK(any_has(c.sentences, std::string("at step 30 the loss of ") + (swapped ? "B" : "A")));
      CHECK(has(c.likely.at(0), "overflow"));
    }
    CHECK_FALSE(compare_histories(a, a).first_not_finite.has_value());
  }
}

TEST_CASE("history: causes") {
  const auto lr = [](int64_t i) { return 0.1 * (1 - 0.01 * static_cast<double>(i)); };
  const auto b = curve(80, falling, lr);
  const auto likely = [&](const History& a) {
    const auto c = compare_histories(a, b);
    CHECK(c.likely.size() == c.advice.size());
    return c.likely.empty() ? std::string() : c.likely.front();
  };
  SUBCASE("another schedule") {
    const auto c = compare_histories(curve(80, falling, [&](int64_t i) { return i < 20 ? lr(i) : 0.5 * lr(i); }), b);
    CHECK(c.first_lr == 20);
    CHECK_FALSE(c.agrees);
    CHECK(any_has(c.sentences, "the learning rates differ from step 20 on: " + npu_train::shortest(0.5 * lr(20)) + " and " +
                                   npu_train::shortest(lr(20))));
    CHECK(has(c.likely.at(0), "a different schedule"));
  }
  SUBCASE("the same schedule, logged a step later") {
    const auto c = compare_histories(curve(80, falling, [&](int64_t i) { return lr(i + 1); }), b);
    CHECK(c.first_lr == 0);
    CHECK(has(c.likely.at(0), "shifted by one step"));
    CHECK(has(compare_histories(curve(80, falling, [&](int64_t i) { return lr(i - 1); }), b).likely.at(0), "shifted by one step"));
  }
  SUBCASE("other weights or data") {
    CHECK(has(likely(curve(80, [](int64_t i) { return falling(i + 7) + 0.1; })), "initial weights"));
  }
  SUBCASE("another precision") {
    CHECK(has(likely(curve(80, [](int64_t i) { return falling(i) * (1 + 0.001 * std::cos(static_cast<double>(i))); })), "bf16"));
  }
  SUBCASE("rounding that grows") {
    const auto c = compare_histories(
        curve(
            80,
            [](int64_t i) { return falling(i) * (1 + 1e-8 * std::exp(0.15 * static_cast<double>(i)) * std::cos(static_cast<double>(i))); }),
        b);
    CHECK(has(c.likely.at(0), "rounding"));
    CHECK(c.agrees);
  }
  SUBCASE("a jump that stays, and one that passes") {
    const auto stays = compare_histories(curve(80, [](int64_t i) { return falling(i) * (i < 33 ? 1.001 : 1.2); }), b);
    CHECK(stays.diverged == 33);
    CHECK(any_has(stays.sentences, "at step 33 they differ by 20 %, as in all later steps"));
    CHECK(any_has(stays.likely, "skipped step"));
    const auto passes = compare_histories(curve(80, [](int64_t i) { return falling(i) * (i == 33 ? 1.2 : 1); }), b);
    CHECK(any_has(passes.sentences, "and less in later steps"));
    CHECK(any_has(passes.likely, "a different batch at this step"));
  }
  SUBCASE("steps that are counted from another number") {
    const auto ahead = compare_histories(curve(80, [](int64_t i) { return falling(i - 1); }), b);
    CHECK(has(ahead.likely.at(0), "counts its steps from 0"));
    CHECK(has(ahead.advice.at(0), "shifted by 1"));
    const auto moved = compare_histories(curve(80, [](int64_t i) { return falling(i - 1); }), b, {.shift = 1});
    CHECK(moved.agrees);
    CHECK_FALSE(moved.first_unequal.has_value());
    CHECK(moved.rows.size() == 79);
    CHECK(has(compare_histories(curve(80, [](int64_t i) { return falling(i + 1); }), b).advice.at(0), "shifted by -1"));
  }
  SUBCASE("a constant factor") {
    const auto c = compare_histories(curve(80, [](int64_t i) { return 4 * falling(i); }), b);
    CHECK(any_has(c.sentences, "4 times those of B"));
    CHECK(has(c.likely.at(0), "mean or sum"));
  }
  SUBCASE("gradients before losses") {
    auto a = curve(80, [](int64_t i) { return falling(i) * (i < 33 ? 1 : 1.2); }), other = b;
    a.others["grad_norm"] = Values(80, 2.0);
    other.others["grad_norm"] = Values(80, 1.0);
    const auto c = compare_histories(a, other);
    CHECK(any_has(c.sentences, "grad_norm from step 0"));
    CHECK(has(c.likely.at(0), "backward"));
  }
  SUBCASE("skipped steps") {
    auto a = b;
    a.skipped = {3, 3};
    const auto c = compare_histories(a, b);
    CHECK(c.agrees);
    CHECK(any_has(c.sentences, "2 in A, 0 in B"));
  }
}

TEST_CASE("history: what cannot be compared is refused") {
  const auto a = curve(10, falling);
  auto b = a;
  for (auto& step : b.step) step += 100;
  const auto e = error_of([&] { compare_histories(a, b); });
  CHECK(e.kind() == ErrorKind::Data);
  CHECK(has(e.what(), "0 to 9 (10), B 100 to 109 (10)"));
  CHECK(has(e.what(), "--columns step="));
  CHECK(error_of([&] { compare_histories(a, a, {.mean_rtol = 0}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { compare_histories(a, a, {.shift = std::numeric_limits<int64_t>::max()}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { compare_histories(a, History{}); }).kind() == ErrorKind::Usage);
  const auto one = compare_histories(curve(1, falling), curve(1, falling));
  CHECK((one.agrees && one.rows.size() == 1));
}

TEST_CASE("the work on a hostile log grows in proportion to its size") {
  const auto listed = [](size_t n, const std::function<std::string(size_t)>& item) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += (i > 0 ? "," : "") + item(i);
    return out;
  };
  const auto number = [](size_t) { return std::string("1"); };
  const auto keys = [&](const std::string& value) {
    return listed(300'000, [&](size_t i) { return "\"k" + std::to_string(i) + "\":" + value; });
  };
  const std::string name(500'000, 'n');
  std::string json_lines;
  for (int i = 0; i < 300'000; ++i) json_lines += "{\"step\":" + std::to_string(i) + ",\"loss\":1}\n";
  const std::vector<std::pair<const char*, std::string>> rows = {
      {"one long list and many short ones", "{\"loss\":[" + listed(1'000'000, number) + "]," + keys("[1]") + "}"},
      {"many columns of one row", "[{\"step\":1,\"loss\":2," + keys("1") + "}]"},
      {"many values under a long name", "[{\"step\":1,\"loss\":2,\"" + name + "\":{" + keys("1") + "}}]"},
      {"JSON lines", json_lines},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(row.first));
    const TempDir dir;
    write_file_atomic(dir / "log", row.second);
    CHECK(grows_in_proportion([&] {
      try {
        read_history(dir / "log");
      } catch (const Error&) {
      }
    }));
  }
  const auto under = history_error("[{\"step\":1,\"loss\":2,\"" + name + "\":{\"a\":1}}]");
  CHECK(has(under.what(), "a name has 500000 bytes; allowed: at most 1000"));
  CHECK(has(history_error("step,loss," + name + "\n1,2,3\n").what(), "a name has 500000 bytes; allowed: at most 1000"));
}

TEST_CASE("lists of an object fill their columns row by row, phases too") {
  const auto h = history_of(R"({"phase": ["train", "val", "train"], "step": [0, 0, 1], "loss": [3, 9, 2], "lr": [0.1, null, 0.2]})");
  CHECK(h.step == Steps{0, 1});
  CHECK(h.loss == Values{3, 2});
  CHECK(h.lr == Values{0.1, 0.2});
}

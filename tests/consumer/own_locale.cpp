// Sets a locale in which 1003 is "1.003" and 0.5 is "0,5". The files of a run must nevertheless be as usual.
#include <npu_train/trainer.hpp>
using namespace npu_train;  // precedes libtorch's headers, which use names of their own types without a namespace
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <locale>
#include <sstream>

namespace {

struct NetImpl : torch::nn::Module {
  torch::nn::Linear out{register_module("out", torch::nn::Linear(2, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return out(x); }
};
TORCH_MODULE(Net);

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, ',');) out.push_back(field);
  return out;
}

// Returns the number of rows; -1 if a row of the file is invalid.
int rows_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  const auto names = fields_of(line);
  int rows = 0;
  for (; std::getline(in, line); ++rows) {
    const auto fields = fields_of(line);
    bool good = fields.size() == names.size();
    for (size_t i = 0; good && i < names.size(); ++i)
      good = (names[i] != "lr" || fields[i] == "0.0015") && (names[i] != "step" || fields[i].find('.') == std::string::npos);
    if (!good) return std::printf("a damaged row: %s\n", line.c_str()), -1;
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1) std::locale::global(std::locale(argv[1]));  // also sets the locale of C
  std::ostringstream here;
  here << 1003 << " " << 0.5;
  std::printf("this program writes 1003 and 0.5 as %s\n", here.str().c_str());
  RunConfig config{.device = "cpu", .precision = "32-true"};
  config.data.options = {{"batch_size", 4}, {"num_workers", "0"}};
  config.optimizer = {.name = "adamw", .options = {{"lr", 0.0015}}};
  config.trainer = {.max_epochs = 120, .check_val_every_n_epoch = 0, .log_every_n_steps = 1, .threads = 1};
  config.checkpoint.every_n_epochs = 0;
  config.output = {.dir = "own_locale"};
  const auto x = torch::randn({36, 2});
  Trainer trainer(config);
  const auto result = trainer.fit(classifier(Net()), std::make_shared<TensorDataset>(x, x.argmax(1)));
  const int rows = rows_of(std::filesystem::path(result.run_dir) / "metrics.csv");
  std::printf("%lld steps, %d rows, %s\n", static_cast<long long>(result.global_step), rows, result.last_checkpoint.c_str());
  const bool named = std::filesystem::path(result.last_checkpoint).filename() == "epoch=120-step=1080";
  return named && rows == 1080 + 120 && result.global_step == 1080 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}

"""The shipped networks with device=npu, on a CANN of the host: against the CPU in every precision, with what a user switches on."""
import csv
import json
import re

from programs import SOURCE, ProgramTest, contents, in_full, main, npu_tool, run_dir, train_app
from torch_npu_wheel import needs_cann, of_user

SHORT = ('data.train_size=160', 'data.val_size=32', 'data.batch_size=16', 'data.num_workers=0', 'trainer.max_epochs=-1', 'trainer.max_steps=20',
         'trainer.threads=1', 'trainer.log_every_n_steps=1', 'trainer.num_sanity_val_steps=0', 'rng=portable', 'deterministic=true', 'lr_scheduler={}')
# The shipped configurations, made smaller. A BatchNorm over few samples and the first steps of Adam enlarge a rounding, so ResNet trains
# with SGD.
CONFIGS = {
    'resnet': ('quickstart', 'model={name: resnet18, stem: small}', 'data.image_size=16', 'optimizer={name: sgd, lr: 0.002}', 'model.fused_kernels=false'),
    'vit': ('vit_tiny_cifar10', 'data={name: generated}', 'model.depth=2', 'model.dim=48', 'model.fused_kernels=false'),
    'gpt2': ('gpt2_tiny', 'data.context=32', 'optimizer.lr=0.001', 'optimizer.eps=1e-6'),
    'bert': ('bert_tiny', 'data.context=32', 'optimizer.lr=0.001'),
    'clip': ('clip_tiny', 'data.context=32'),
}
# Every fourth scale overflows, and is far from the largest one that does not, so that rounding does not decide.
OVERFLOWS = 'grad_scaler={init_scale: 16777216, growth_interval: 3, growth_factor: 4096, backoff_factor: 0.000244140625}'


@needs_cann
class NpuTraining(ProgramTest):
    def train(self, name, network, *words, **env):
        file, *ours = CONFIGS[network]
        return train_app(SOURCE / f'configs/{file}.yaml', *ours, *SHORT, f'output.dir={self.dir / name}', *words, env=of_user(**env))

    def rows(self, name):
        """(step, phase, scale, skipped steps) and the loss of each row of a run."""
        with open(run_dir(self.dir / name) / 'metrics.csv') as file:
            return [(tuple(row[key] for key in ('step', 'phase', 'loss_scale', 'skipped')), float(row['loss'])) for row in csv.DictReader(file) if row['loss']]

    def compare(self, network, precision, tolerance, *words, **env):
        """The rows of a run on the CPU and of one on the NPU: the same steps, scales and skips, and losses apart by at most the tolerance."""
        both = []
        for device in ('cpu', 'npu'):
            name = f"{network}_{precision}_{device}_{env.get('SIM_CANN_SOC', '')}"
            self.assertDone(self.train(name, network, f'device={device}', f'precision={precision}', *words, **env))
            both.append(self.rows(name))
        cpu, npu = both
        self.assertGreater(len(cpu), 20)
        for a, b in zip(cpu, npu, strict=True):
            self.assertEqual(a[0], b[0])
            self.assertAlmostEqual(a[1], b[1], delta=tolerance, msg=f'{network} {precision} {a[0]}')
        return npu

    @in_full  # tests/apps/torch_npu_test.py has a short form
    def test_fp32_has_the_losses_of_the_cpu(self):
        for network in CONFIGS:
            with self.subTest(network): self.compare(network, '32-true', 1e-5)

    @in_full
    def test_bf16_has_the_losses_of_the_cpu_but_for_rounding(self):
        for network in CONFIGS:
            for precision in ('bf16-mixed', 'bf16-true'):
                with self.subTest(network, precision=precision): self.compare(network, precision, 0.1 if network == 'clip' else 0.01)

    @in_full
    def test_fp16_skips_the_steps_that_the_cpu_skips(self):
        for network in CONFIGS:
            for precision in ('16-mixed', 'O2', 'O3'):
                with self.subTest(network, precision=precision):
                    rows = self.compare(network, precision, 0.1 if network == 'clip' else 0.01, OVERFLOWS)
                    self.assertGreater(sum(skipped == '1' for (*_, skipped), _ in rows), 3)

    def test_a_910A_reports_overflows_in_its_float_status(self):
        """Its gradients are the largest number instead of infinity, and so are its masks."""
        rows = self.compare('gpt2', '16-mixed', 0.01, OVERFLOWS, SIM_CANN_SOC='910A')
        self.assertGreater(sum(skipped == '1' for (*_, skipped), _ in rows), 3)

    @in_full
    def test_chips_that_saturate_train_convolutions(self):
        """They use operators of the old path."""
        for network, soc in (('vit', '310P3'), ('resnet', '910A')):
            with self.subTest(network, soc=soc):
                rows = self.compare(network, '16-mixed', 0.01, OVERFLOWS, SIM_CANN_SOC=soc)
                self.assertGreater(sum(skipped == '1' for (*_, skipped), _ in rows), 3)

    def check_races(self, network, *words):
        """A race would change the exit status, and would be reported in the output."""
        words = ('device=npu', 'precision=bf16-mixed', 'trainer.max_steps=3', *words)
        result = self.train(f'races_{network}', network, *words, SIM_CANN_CHECK='races', TASK_QUEUE_ENABLE='0')
        self.assertDone(result)
        self.assertNotIn('sim_cann: race', result[2])

    def test_no_access_races(self):
        self.check_races('vit', 'dist.offload=optimizer')

    @in_full
    def test_no_access_of_a_network_races(self):
        for network in CONFIGS:
            with self.subTest(network): self.check_races(network)

    @in_full
    def test_clipping_averages_and_accumulation_are_those_of_the_cpu(self):
        self.compare('vit', '32-true', 1e-5, 'trainer.gradient_clip_val=0.5', 'average={enabled: true, decay: 0.9}', 'trainer.accumulate_grad_batches=2')
        for part in ('model', 'ema'):  # validations use the averages
            self.assertTrue((run_dir(self.dir / 'vit_32-true_npu_') / f'checkpoints/last/{part}.safetensors').exists())

    @in_full
    def test_recomputed_blocks_change_no_bit(self):
        def run(name, *words):
            self.assertDone(self.train(name, 'vit', 'device=npu', 'precision=bf16-mixed', 'model.dropout=0.1', *words))
            return self.rows(name), contents(self.dir / name)['model.safetensors']
        self.assertEqual(run('plain'), run('recomputed', 'trainer.gradient_checkpointing=blocks'))

    @in_full
    def test_an_optimizer_on_the_host_rounds_otherwise(self):
        for name, where in (('plain', 'none'), ('offloaded', 'optimizer')):
            self.assertDone(self.train(name, 'vit', 'device=npu', 'precision=32-true', f'dist.offload={where}'))
        for a, b in zip(self.rows('plain'), self.rows('offloaded'), strict=True):
            self.assertEqual(a[0], b[0])
            self.assertAlmostEqual(a[1], b[1], delta=1e-5)

    def test_graphs_change_no_number(self):
        """With dropout, which the NPU's generator draws in graphs, too."""
        rows = []
        for name, graphs in (('plain', 'false'), ('graphs', 'true')):
            result = self.train(name, 'vit', 'device=npu', 'precision=bf16-mixed', 'model.dropout=0.1', f'trainer.cuda_graphs={graphs}', 'trainer.max_steps=8', 'rng=native')
            self.assertDone(result)
            rows.append(self.rows(name))
            self.assertEqual('forward and backward of a window are captured' in result[1] + result[2], graphs == 'true', result[2])
        self.assertEqual(*rows)

    def test_a_910A_has_no_graphs_and_a_run_goes_on(self):
        result = self.train('graphs', 'vit', 'device=npu', 'precision=32-true', 'trainer.cuda_graphs=true', 'trainer.max_steps=5', 'rng=native', SIM_CANN_SOC='910A')
        self.assertDone(result)
        self.assertIn('cuda_graphs: off: npu:0 has no graphs: this chip cannot capture one', result[2])
        self.assertNotIn('cannot be captured', result[2])

    def test_resume_bit_for_bit(self):
        """With dropout that the NPU's generator draws."""
        words = ('device=npu', 'precision=16-mixed', 'model.dropout=0.1', OVERFLOWS, 'rng=native', '--verify-resume', '--verify-steps', '6')
        self.assertIn('bit for bit', self.assertDone(self.train('out', 'vit', *words)))

    @in_full
    def test_no_memory_is_left(self):
        """The advice is found without torch_npu's help, and a run that follows it fits."""
        small = {'SIM_CANN_HBM': '0.04'}
        result = self.train('out', 'vit', 'device=npu', 'precision=32-true', 'data.batch_size=160', **small)
        self.assertFails(result, 8, 'NPU out of memory. Tried to allocate', 'in the forward of micro-batch 1 of 1 of 160 samples')
        advised = re.search('change that would fit is (.+)', result[2])[1].split()
        self.assertEqual(len(advised), 2, advised)
        self.assertDone(self.train('advised', 'vit', 'device=npu', 'precision=32-true', *advised, 'trainer.max_steps=1', **small))

    def tool(self, command, *words):
        return self.assertDone(npu_tool(command, SOURCE / 'configs/vit_tiny_cifar10.yaml', *CONFIGS['vit'][1:], *SHORT, *words, env=of_user()))

    @in_full
    def test_predicted_memory_is_that_of_a_training(self):
        """The CPU's operators are recorded, because torch_npu's allocator does not report to libtorch."""
        for row in json.loads(self.tool('memory', 'device=npu', 'precision=auto', 'model.dim=96', '--check', '5,16', '--json')):
            self.assertLess(abs(row['error']), 0.15, row)

    @in_full
    def test_the_tools(self):
        bench = json.loads(self.tool('bench', 'device=npu', 'precision=bf16-mixed', '--what', 'step,amp', '--steps', 3, '--warmup', 1, '--json'))
        self.assertEqual(bench['device'], 'npu:0')
        for precision in ('32-true', 'bf16-mixed', '16-mixed'):
            report = json.loads(self.tool('validate', '--device', 'npu', '--precision', precision, '--samples', 16, '--json'))
            self.assertEqual((report['judged']['device'], report['all_passed']), ('npu:0', True))
        self.assertIn('npu:0: the model runs and trains', self.tool('analyze', '--try', 'npu'))
        self.assertIn('determinism verified', self.tool('verify-determinism', 'device=npu', 'precision=16-mixed'))

    @in_full
    def test_doctor_greets_both_kinds_of_chips(self):
        for soc, without in (('910B1', ()), ('910A', ('bf16-mixed', 'bf16-true'))):
            doctor = self.assertDone(npu_tool('doctor', '--device', 'npu', env=of_user(SIM_CANN_SOC=soc)))
            for precision in ('32-true', 'bf16-mixed', '16-mixed', 'bf16-true', '16-true'):
                self.assertEqual(f'OK  npu:0 step {precision}' in doctor, precision not in without, (soc, precision, doctor))


if __name__ == '__main__':
    main()

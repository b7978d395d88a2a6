"""A model that is larger than the private memory of a rank: zero3 makes and trains it, with the bits of a run that has all memory."""
import os
import pathlib
import resource
import subprocess
import unittest.mock

from distributed_test import children, environment
from programs import BIN, ProgramTest, checksums, contents, in_full, main, needs_sim_npu

RANKS = 6
# Many blocks, so that the two or three that are complete at a time are a small part of the model.
SIZE = {'layers': 36, 'dim': 256}
CONFIG = '''
seed: 5
device: {device}
deterministic: true
precision: 32-true
model: {{name: gpt2, vocab_size: 256, context: 16, layers: {layers}, heads: 4, dim: {dim}}}
data: {{name: generated_text, context: 16, batch_size: 2, num_workers: 0}}
task: {{name: language_model}}
optimizer: {{name: sgd, lr: 0.1}}
trainer: {{max_steps: 1, threads: 1, check_val_every_n_epoch: 0, num_sanity_val_steps: 0, log_every_n_steps: 1}}
checkpoint: {{save_top_k: 0}}
'''


def parameters(layers, dim): return layers * (12 * dim * dim + 13 * dim) + (256 + 16 + 2) * dim


def private_bytes(pid):
    """The bytes that count for RLIMIT_DATA."""
    for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith('VmData:'): return int(line.split()[1]) * 1024
    raise AssertionError(f'no VmData of {pid}')


def shards(out):
    """The checksum of each rank's part of the weights."""
    found = {name: checksum for name, checksum in checksums(out).items() if name.startswith('model.rank')}
    assert len(found) == RANKS, found
    return found


class LargeModel(ProgramTest):
    def setUp(self):
        super().setUp()
        # Counts only the model: without the arena, whose address space is as large as the machine's memory and counts as private, and
        # without gaps in the heap, which count, too.
        here = unittest.mock.patch.dict(os.environ, {'NPU_TRAIN_ALLOCATOR': 'system', 'MALLOC_MMAP_THRESHOLD_': '65536', 'TMPDIR': str(self.dir)})
        here.start()
        self.addCleanup(here.stop)

    def train(self, name, *args, limit=None, largest_file=None, ranks=RANKS, device='cpu', layers=SIZE['layers'], dim=SIZE['dim']):
        """(exit code, stdout, stderr) of ranks, of which none may have more than `limit` bytes of private memory."""
        def lower():
            if limit is not None: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            if largest_file is not None: resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        config = self.config(CONFIG.format(device=device, layers=layers, dim=dim), name=f'{name}.yaml')
        command = [BIN / 'train_app', config, '--nproc', ranks, f'output.dir={self.dir / name}', *args]
        done = subprocess.run([str(a) for a in command], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, preexec_fn=lower)
        return done.returncode, done.stdout, done.stderr

    def bytes_of_a_process(self, ranks=RANKS):
        """The private memory of a rank that trains one block."""
        config = self.config(CONFIG.format(device='cpu', layers=1, dim=SIZE['dim']), name='small.yaml')
        process = self.start(config, '--nproc', ranks, 'trainer.strategy=zero3', 'trainer.max_steps=100000', 'trainer.max_epochs=100000',
                             f'output.dir={self.dir / "small"}')
        self.wait_for(process, lambda: 'step 5' in self.said() or ' 5/' in self.said(), 'five steps')
        started = [pid for pid in children(process.pid) if 'RANK' in environment(pid)]
        self.assertEqual(len(started), ranks)
        found = max(private_bytes(pid) for pid in started)
        process.terminate()
        process.wait()
        return found

    @in_full
    def test_it_trains_where_it_does_not_fit(self):
        """It is made in the memory of a process and 0.6 of the model, and trained in the memory of a process and the model."""
        process, model = self.bytes_of_a_process(), 4 * parameters(**SIZE)
        tight = process + int(0.6 * model)
        self.assertFails(self.train('ddp', 'trainer.strategy=ddp', limit=tight), 8, 'while the model was made', "can't allocate memory",
                         'hint: trainer.strategy=zero3')
        self.assertFails(self.train('no_room', 'trainer.strategy=zero3', limit=tight, largest_file=1 << 16), 8, 'while the model was made',
                         f'{self.dir}: no file of ', 'ulimit -f allows no file of this size', 'hint: TMPDIR on a disk with room')
        self.assertDone(self.train('made', 'trainer.strategy=zero3', 'trainer.max_steps=0', limit=tight))
        limited = self.train('limited', 'trainer.strategy=zero3', limit=process + model)
        self.assertDone(limited)
        self.assertIn(f' of files in {self.dir} on each rank\n', limited[2])
        free = self.train('free', 'trainer.strategy=zero3')
        self.assertDone(free)
        self.assertNotIn(' of files in ', free[2])
        self.assertEqual(shards(self.dir / 'limited'), shards(self.dir / 'free'))

    @needs_sim_npu
    def test_it_is_made_on_devices_on_which_it_does_not_fit(self):
        hbm = f'sim_npu.hbm={int(0.8 * 4 * parameters(24, 128)) // 1024}KiB'
        size = {'device': 'sim_npu', 'layers': 24, 'dim': 128}
        self.assertFails(self.train('ddp', 'trainer.strategy=ddp', 'trainer.max_steps=0', hbm, **size), 8, 'while the model was made', 'hint: trainer.strategy=zero3')
        made = self.train('zero3', 'trainer.strategy=zero3', 'trainer.max_steps=0', hbm, **size)
        self.assertDone(made)
        self.assertIn('0 steps', made[1])
        chosen = self.train('auto', 'trainer.strategy=auto', 'trainer.max_steps=0', hbm, **size)
        self.assertDone(chosen)
        self.assertIn('MiB of them with zero3\n', chosen[2])
        size = {'device': 'sim_npu', 'layers': 3, 'dim': 64}
        for strategy in ('ddp', 'zero3'):
            self.assertDone(self.train(strategy + '-16', f'trainer.strategy={strategy}', 'precision=16-mixed', 'trainer.max_steps=2', **size))
        self.assertEqual(contents(self.dir / 'zero3-16'), contents(self.dir / 'ddp-16'))

    def test_frozen_parameters_stay_in_files(self):
        limit = self.bytes_of_a_process(ranks=2) + int(0.8 * 4 * parameters(**SIZE))
        result = self.train('frozen', 'trainer.strategy=zero3', 'model.lora={rank: 2, targets: [qkv]}', limit=limit, ranks=2)
        self.assertDone(result)
        self.assertRegex(result[2], r' of files in \S+ on each rank; what is in no shard stays there, \d+\.\d MiB\n')


if __name__ == '__main__': main()
